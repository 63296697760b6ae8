"""The sizes of the small model, in the words of the public classes' configs."""

HIDDEN = 192
HEADS = 6
LAYERS = 6
TEXT_LAYERS = 4
PREFIX = 34  # template ids that the pipeline drops
SUFFIX = 5
SIZES = [(64, 64), (96, 96), (128, 128), (128, 96)]  # width, height

TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)

# The real names in the real order; the ids follow the small vocabulary.
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
ADDED = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
]

# Keys and structure are the real model's; only sizes differ: what reads the one reads the other.
VAE = dict(
    base_dim=16,
    z_dim=16,
    dim_mult=[1, 2, 4, 4],
    num_res_blocks=2,
    attn_scales=[],
    temperal_downsample=[False, True, True],
    dropout=0.0,
)

TRANSFORMER = dict(
    patch_size=2,
    in_channels=64,
    out_channels=16,
    num_layers=LAYERS,
    attention_head_dim=HIDDEN // HEADS,
    num_attention_heads=HEADS,
    joint_attention_dim=HIDDEN,
    guidance_embeds=False,
    axes_dims_rope=[8, 12, 12],
)

SCHEDULER = dict(
    num_train_timesteps=1000,
    shift=1.0,
    use_dynamic_shifting=True,
    base_shift=0.5,
    max_shift=0.9,
    base_image_seq_len=256,
    max_image_seq_len=8192,
    shift_terminal=0.02,
    time_shift_type="exponential",
    invert_sigmas=False,
    stochastic_sampling=False,
    use_karras_sigmas=False,
    use_exponential_sigmas=False,
    use_beta_sigmas=False,
)

# What a caller gets who asks for nothing else.
DEFAULTS = dict(
    size="128x128",
    steps=20,
    guidance=4.0,
    negative_prompt=" ",
    sizes=[f"{w}x{h}" for w, h in SIZES],
)


def text_encoder(vocab: dict, rows: int) -> dict:
    """The flat config of the real checkpoint; `rows` is the embedding's height."""
    text = dict(
        hidden_size=HIDDEN,
        intermediate_size=512,
        num_hidden_layers=TEXT_LAYERS,
        num_attention_heads=6,
        num_key_value_heads=2,
        hidden_act="silu",
        rms_norm_eps=1e-6,
        vocab_size=rows,
        rope_theta=1000000.0,
        rope_scaling={"type": "mrope", "mrope_section": [4, 6, 6]},
        max_position_embeddings=2048,
        max_window_layers=TEXT_LAYERS,
        sliding_window=2048,
        use_sliding_window=False,
        attention_dropout=0.0,
        initializer_range=0.02,
        use_cache=True,
        bos_token_id=vocab["<|endoftext|>"],
        eos_token_id=vocab["<|im_end|>"],
    )
    # The pipeline never runs the vision tower: the least that its class accepts.
    vision = dict(
        model_type="qwen2_5_vl",
        depth=1,
        hidden_size=32,
        intermediate_size=32,
        num_heads=2,
        in_chans=3,
        out_hidden_size=HIDDEN,
        patch_size=14,
        spatial_merge_size=2,
        spatial_patch_size=14,
        temporal_patch_size=2,
        tokens_per_second=2,
        window_size=112,
        fullatt_block_indexes=[0],
        hidden_act="silu",
    )
    ids = dict(
        image_token_id=vocab["<|image_pad|>"],
        video_token_id=vocab["<|video_pad|>"],
        vision_start_token_id=vocab["<|vision_start|>"],
        vision_end_token_id=vocab["<|vision_end|>"],
        vision_token_id=vocab["<|vision_pad|>"],
    )
    return dict(
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        model_type="qwen2_5_vl",
        tie_word_embeddings=True,
        torch_dtype="bfloat16",
        **text,
        **ids,
        vision_config=vision,
    )
