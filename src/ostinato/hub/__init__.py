"""The Hugging Face hub: repositories, uploads beside training, model cards."""
