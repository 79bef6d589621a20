from clearformer.text.tokenizer import TextConfig, Tokenizer, train_tokenizer

__all__ = ["TextConfig", "Tokenizer", "train_tokenizer"]
