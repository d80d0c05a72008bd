"""Names of transformers and accelerate that other code uses, as views on Ostinato's parts."""
