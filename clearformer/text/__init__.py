from clearformer.text.config import TextConfig
from clearformer.text.tokenizer import Tokenizer, train_tokenizer

__all__ = ["TextConfig", "Tokenizer", "train_tokenizer"]
