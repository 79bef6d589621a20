"""Build tokenizers from the vocabulary files of older published models, which have no tokenizer.json.

    vocab.txt                  BERT: WordPiece, one token per line in the order of ids   Devlin et al. 2019
    vocab.json + merges.txt    GPT-2 and RoBERTa: byte-level BPE                         Radford et al. 2019

A tokenizer_config.json in the same folder adds the settings `do_lower_case`, `strip_accents`,
`tokenize_chinese_chars` and `add_prefix_space`. If it is missing, a vocabulary without capital letters is uncased.
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from clearformer.errors import TokenizerError
from clearformer.text.growth import has_gaps
from clearformer.text.roles import Roles, read_table, settle, side_file_roles, usual_roles

BPE_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # the latter are OpenAI's file names


def build_from(folder: Path) -> Tokenizer:
    """Build a tokenizer from the vocabulary files in `folder`."""
    settings = read_table(folder / "tokenizer_config.json")
    if (folder / "vocab.txt").exists():
        return wordpiece(folder / "vocab.txt", settings)
    for vocab, merges in BPE_FILES:
        if (folder / vocab).exists() and (folder / merges).exists():
            return byte_bpe(folder / vocab, folder / merges, settings)
    is_sentencepiece = any(folder.glob("*.model")) or any(folder.glob("*.spm"))
    raise TokenizerError(
        f"{folder} contains no supported tokenizer file",
        "convert its SentencePiece model to a tokenizer.json, for example with transformers.AutoTokenizer"
        if is_sentencepiece
        else "copy the model's tokenizer.json, vocab.txt, or vocab.json and merges.txt into the folder",
    )


def wordpiece(path: Path, settings: dict[str, Any]) -> Tokenizer:
    """Build BERT's tokenizer: split off Chinese characters and punctuation; if uncased, fold case and accents."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: some tokens of BERT are line separators
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} cannot be read ({error})", "copy the file again") from None
    vocab = {token: token_id for token_id, token in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    roles = settle(usual_roles(vocab) | side_file_roles(path.parent, vocab), str(path))
    if roles.unk is None:
        raise TokenizerError(
            f"{path} has no token for unknown words, which WordPiece requires",
            "give a vocab.txt with [UNK], such as BERT's",
        )
    is_uncased = all(token == token.lower() for token in vocab if token not in roles)
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=roles.unk))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", is_uncased),
        strip_accents=settings.get("strip_accents"),  # None: follow the case setting
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{roles.bos} $A {roles.eos}",
        pair=f"{roles.bos} $A {roles.eos} $B:1 {roles.eos}:1",
        special_tokens=[(roles.bos, vocab[roles.bos]), (roles.eos, vocab[roles.eos])],
    )
    return with_specials(tokenizer, roles)


def byte_bpe(vocab_path: Path, merges_path: Path, settings: dict[str, Any]) -> Tokenizer:
    """Build GPT-2's byte-level BPE. If BOS and EOS differ, texts get the special tokens of RoBERTa:

    <s> a </s>        <s> a </s></s> b </s>                                          Liu et al. 2019
    """
    try:
        vocab, merges = models.BPE.read_file(str(vocab_path), str(merges_path))
    except Exception as error:  # the Rust library raises nothing more precise
        raise TokenizerError(
            f"{vocab_path} and {merges_path.name} cannot be read ({error})", "copy both files again"
        ) from None
    if has_gaps(vocab):
        raise TokenizerError(
            f"{vocab_path}: the number of a token is far beyond the size of the vocabulary", "copy the file again"
        )
    if any(token.endswith("</w>") for token in vocab):
        raise TokenizerError(
            f"{vocab_path}: tokens end with </w>, so it is not a byte-level vocabulary like GPT-2's",
            "convert the tokenizer to a tokenizer.json",
        )
    roles = settle(usual_roles(vocab) | side_file_roles(vocab_path.parent, vocab), str(vocab_path))
    spaced = settings.get("add_prefix_space", False)
    tokenizer = Tokenizer(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    tokenizer.decoder = decoders.ByteLevel()
    if roles.bos != roles.eos:
        eos, bos = (roles.eos, vocab[roles.eos]), (roles.bos, vocab[roles.bos])
        tokenizer.post_processor = processors.RobertaProcessing(eos, bos, add_prefix_space=spaced)
    return with_specials(tokenizer, roles)


def with_specials(tokenizer: Tokenizer, roles: Roles) -> Tokenizer:
    """Register the tokens in `roles` as special tokens. RoBERTa's <mask> absorbs the space before it."""
    for token in dict.fromkeys(role for role in roles if role is not None):
        tokenizer.add_special_tokens([AddedToken(token, lstrip=token == "<mask>", normalized=False)])
    return tokenizer
