"""A model of sound that learns within seconds."""

from __future__ import annotations

TINY_WAV2VEC2 = {  # convolutions over 18 ms, every 16 ms
    "model_type": "wav2vec2",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "conv_dim": [32, 32, 32],
    "conv_kernel": [24, 8, 8],
    "conv_stride": [8, 4, 4],
    "num_feat_extract_layers": 3,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 32,
    "initializer_range": 0.05,
    "apply_spec_augment": False,
    **dict.fromkeys(("hidden_dropout", "attention_dropout", "feat_proj_dropout", "layerdrop"), 0.0),
}
