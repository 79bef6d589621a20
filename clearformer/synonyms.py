"""What other libraries call the options and settings of Clearformer: Hugging Face, fairseq, PyTorch Lightning, Keras.

    options_like("--learning-rate", options)       ["--lr"]
    options_like("--warmup-steps", options)        ["--set schedule.warmup=…"]
    settings_like("num_attention_heads")           ["model.n_heads"]

They are only used for the hint of an error: no name here is accepted instead of ours. Each entry has our name, and
theirs in lower case, with underscores.
"""

from collections.abc import Collection

SETTINGS = {
    "train.steps": """
        max_steps num_steps n_steps total_steps training_steps train_steps num_training_steps max_update max_updates
        total_num_update iterations num_iterations n_iter max_iter max_iters steps_per_run""",
    "train.epochs": """
        epoch num_epochs n_epochs num_train_epochs max_epochs max_epoch min_epochs nb_epoch nb_epochs train_epochs""",
    "train.tokens": """
        batch batch_size bs bsz train_batch_size per_device_train_batch_size per_device_batch_size micro_batch_size
        minibatch_size mini_batch_size batchsize tokens_per_batch tokens_per_step""",
    "train.accumulation": """
        gradient_accumulation_steps gradient_accumulation grad_accumulation accumulate_grad_batches accumulation_steps
        grad_accum update_freq""",
    "train.clip": """
        max_grad_norm clip_norm clipnorm gradient_clip_val gradient_clip grad_clip clip_grad clip_grad_norm
        gradient_clipping""",
    "train.precision": "fp16 bf16 float16 mixed_precision amp dtype torch_dtype half",
    "train.seed": "random_seed random_state seed_everything rng_seed manual_seed data_seed",
    "train.validate_every": """
        eval_steps eval_interval eval_every eval_strategy evaluation_strategy val_check_interval validate_interval
        validate_interval_updates check_val_every_n_epoch validation_steps valid_every val_every""",
    "train.save_every": "save_steps save_interval save_interval_updates save_strategy save_freq every_n_train_steps",
    "train.log_every": "logging_steps log_interval log_every_n_steps log_steps print_every verbose",
    "train.patience": "early_stopping early_stopping_patience early_stop",
    "train.metric": "metric_for_best_model best_checkpoint_metric monitor",
    "train.ema": "ema_decay swa moving_average",
    "train.recompute": "gradient_checkpointing activation_checkpointing checkpoint_activations use_checkpoint",
    "train.compile": "torch_compile jit_compile use_compile",
    "train.parallel": "fsdp strategy ddp deepspeed",
    "train.loggers": "report_to logger tensorboard_logdir use_wandb wandb_project trackers",
    "train.max_seconds": "max_time max_hours stop_time_hours",
    "optim.lr": "learning_rate learningrate base_lr max_lr peak_lr lr_peak init_lr eta alpha step_size",
    "optim.weight_decay": "wd l2 weight_decay_rate decay",
    "optim.kind": "optimizer optimiser optim_type opt optimizer_name",
    "optim.betas": "adam_betas beta1 beta2 adam_beta1 adam_beta2 beta_1 beta_2",
    "optim.eps": "epsilon adam_epsilon adam_eps",
    "schedule.warmup": """
        warmup_steps num_warmup_steps n_warmup_steps warmup_updates warmup_iters warmup_ratio warmup_epochs
        lr_warmup""",
    "schedule.kind": "lr_scheduler lr_scheduler_type scheduler scheduler_type lr_schedule lr_decay",
    "schedule.floor": "min_lr end_learning_rate stop_min_lr",
    "model.d_model": """
        hidden_size hidden_dim hidden_units embed_dim embedding_dim embedding_size embed_size n_embd dim d_hidden
        encoder_embed_dim decoder_embed_dim model_dim units width""",
    "model.n_layers": "num_layers num_hidden_layers n_layer layers depth num_blocks n_blocks",
    "model.n_encoder_layers": """
        encoder_layers num_encoder_layers num_layers num_hidden_layers n_layers n_layer layers depth""",
    "model.n_decoder_layers": """
        decoder_layers num_decoder_layers num_layers num_hidden_layers n_layers n_layer layers depth""",
    "model.n_heads": """
        num_heads num_attention_heads n_head nhead heads attention_heads encoder_attention_heads
        decoder_attention_heads""",
    "model.n_kv_heads": "num_key_value_heads num_kv_heads kv_heads",
    "model.d_ff": """
        intermediate_size ffn_dim ff_dim feedforward_dim dim_feedforward n_inner encoder_ffn_dim decoder_ffn_dim
        encoder_ffn_embed_dim decoder_ffn_embed_dim mlp_dim d_inner""",
    "model.d_head": "head_dim d_kv",
    "model.d_value": "d_v v_dim value_dim v_head_dim",
    "model.begins_with": "decoder_start_token decoder_start_token_id",
    "model.max_length": """
        max_position_embeddings n_positions n_ctx block_size context_length context_size context_window max_seq_len
        max_seq_length max_source_positions max_target_positions sequence_length seq_len model_max_length""",
    "model.dropout": "hidden_dropout_prob hidden_dropout dropout_rate drop_rate resid_pdrop embd_pdrop dropout_p",
    "model.attention_dropout": "attention_probs_dropout_prob attn_dropout attn_pdrop",
    "model.activation_dropout": "relu_dropout act_dropout",
    "model.activation": "hidden_act activation_function activation_fn act_fn act",
    "model.norm_eps": "layer_norm_eps layer_norm_epsilon rms_norm_eps",
    "model.share": "tie_word_embeddings share_all_embeddings share_decoder_input_output_embed weight_tying",
    "model.tied": "tie_word_embeddings share_decoder_input_output_embed weight_tying",
    "model.n_classes": "num_classes num_labels n_labels num_class",
    "model.patch": "patch_size",
    "model.kind": "arch architecture model_type model_name",
    "text.vocab_size": "vocabulary_size vocab n_vocab num_words num_tokens bpe_size num_merges",
    "text.lowercase": "do_lower_case lower_case lower uncased",
    "image.size": "image_size img_size resolution crop_size input_size",
    "data.held_out": "validation_split val_split valid_size val_fraction",
    "data.held_out_test": "test_size test_split",
    "data.max_tokens": "max_seq_length max_seq_len max_len",
    "objective.label_smoothing": "label_smoothing_factor smoothing label_smooth",
    "objective.weights": "class_weight class_weights loss_weights pos_weight",
    "objective.prior": "class_prior class_priors logit_adjustment prior_correction",
    "decode.beam": "num_beams beam_size beam_width beams n_beams",
    "decode.length_penalty": "lenpen len_penalty",
    "decode.max_new": "max_new_tokens max_gen_len max_generated_tokens max_length_b",
    "tuning.method": "peft peft_type adapter use_lora",
    "tuning.lora.rank": "lora_r lora_rank rank r",
    "tuning.lora.alpha": "lora_alpha",
    "tuning.lora.targets": "target_modules lora_target_modules",
}

TABLES = {
    "train": "training trainer training_args training_arguments trainer_args fit run",
    "optim": "optimizer optimiser optimization opt",
    "schedule": "scheduler lr_scheduler lr_schedule",
    "model": "network net architecture arch config",
    "data": "dataset datasets dataloader corpus",
    "text": "tokenizer tokenization vocab vocabulary bpe",
    "decode": "generation generate generation_config inference search sampling",
    "evaluate": "eval evaluation validation metrics",
    "objective": "loss criterion task",
    "tuning": "lora peft adapter finetune finetuning fine_tuning",
    "image": "images vision transforms augmentation",
    "sound": "audio speech features",
}

OPTIONS = {
    "--steps": SETTINGS["train.steps"],
    "--epochs": SETTINGS["train.epochs"] + " e",
    "--batch-size": SETTINGS["train.tokens"] + " b",
    "--lr": SETTINGS["optim.lr"],
    "--seed": SETTINGS["train.seed"],
    "--precision bfloat16": "fp16 bf16 float16 amp mixed_precision half dtype torch_dtype",
    "--precision": "dtype torch_dtype quantize quantization load_in_8bit",
    "--device cuda": "gpu gpus cuda use_gpu use_cuda accelerator n_gpu num_gpus on_gpu devices",
    "--device cpu": "cpu no_cuda use_cpu",
    "--out": """
        output output_dir output_file output_path outfile out_file out_dir save_dir save_path save save_to
        default_root_dir log_dir logdir run_dir run_name o destdir dest results_path""",
    "--input": "input_file in_file infile file source_file src i in_path input_path texts predict_data",
    "--column": "text_column text_field field key columns text_columns source_column input_column prompt_column",
    "--model": """
        model_name model_name_or_path model_path checkpoint checkpoint_path ckpt ckpt_path path pretrained weights
        load restore_file arch architecture model_type""",
    "--pairs": "dataset data data_path data_dir dataset_name train_file train_data train parallel bitext translations",
    "--text": "dataset data data_path data_dir dataset_name train_file train_data train corpus book",
    "--labels": "dataset data data_path data_dir dataset_name train_file train_data train csv labelled classes",
    "--images": "dataset data data_path data_dir dataset_name train_data train image_folder photos pictures",
    "--recordings": "dataset data data_path data_dir dataset_name train_file train_data train audio wav speech sounds",
    "--valid": "validation validation_file validation_data val val_file val_data dev eval_file eval_data eval_dataset",
    "--test": "test_file test_data test_dataset",
    "--resume": "resume_from_checkpoint resume_from continue restore",
    "--method": "peft lora use_lora tuning adapter",
    "--balance": "class_weight class_weights balanced weighted",
    "--set": "config_override override overrides options opts param",
    "--beam": SETTINGS["decode.beam"],
    "--length-penalty": SETTINGS["decode.length_penalty"],
    "--max-new": SETTINGS["decode.max_new"] + " max_length max_len max_tokens length n_predict",
    "--temperature": "temp sampling_temp do_sample sampling sample",
    "--top-k": "sampling_topk topk",
    "--top-p": "sampling_topp topp nucleus",
    "--n": "num_return_sequences num_samples n_samples",
    "--n-best": "num_return_sequences nbest n best",
    "--stop": "stop_sequences stop_strings eos",
    "--top": "top_k topk k num_classes",
    "--prompt": "input_text context prefix",
    "--unit": "normalize normalize_embeddings l2",
    "--refs": "reference references ref",
    "--hypotheses": "hypothesis hyp hyps predictions system",
    "--json": "format output_format as_json",
}


def options_like(option: str, known: Collection[str]) -> list[str]:
    """Return the options of a command, `known`, that mean the same as an unknown one; or the setting, for --set."""
    word = simple(option)
    if f"--{word.replace('_', '-')}" in known:  # --batch_size
        return [f"--{word.replace('_', '-')}"]
    names = [name for name, words in OPTIONS.items() if name.split()[0] in known and word in words.split()]
    if names or "--set" not in known:
        return names
    return [f"--set {setting}=…" for setting in settings_like(word)[:1]]


def keywords_like(word: str, known: Collection[str]) -> list[str]:
    """Return the keywords of a Python function, `known`, that mean the same as an unknown one."""
    options = options_like(word, {f"--{name.replace('_', '-')}" for name in known})
    return list(dict.fromkeys(simple(option.split()[0]) for option in options))


def settings_like(word: str) -> list[str]:
    """Return the settings that have this name in another table, or that other libraries call by it."""
    word = simple(word)
    return [name for name, words in SETTINGS.items() if word == name.rpartition(".")[2] or word in words.split()]


def tables_like(word: str) -> list[str]:
    return [name for name, words in TABLES.items() if simple(word) in words.split()]


def simple(word: str) -> str:
    """Return a name without dashes in front, in lower case, with underscores: `batch_size` for --batch-size."""
    return word.lstrip("-").replace("-", "_").lower()
