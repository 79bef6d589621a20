"""Tokenizers of published models from the vocabularies they were published with, before there was a tokenizer.json.

    vocab.txt                  BERT: one WordPiece entry a line, its number the id       Devlin et al. 2019
    vocab.json + merges.txt    GPT-2 and RoBERTa: byte-level BPE                         Radford et al. 2019

A tokenizer_config.json beside them settles what the vocabulary cannot: `do_lower_case`, `strip_accents`,
`tokenize_chinese_chars`, `add_prefix_space`. Without it, a vocabulary that knows no capital letter is uncased.
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from clearformer.errors import TokenizerError
from clearformer.text.roles import Roles, named_beside, read_table, settle, usual_roles

BPE_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # the latter as OpenAI named them


def build_from(folder: Path) -> Tokenizer:
    """The tokenizer whose vocabulary lies in `folder`."""
    settings = read_table(folder / "tokenizer_config.json")
    if (folder / "vocab.txt").exists():
        return wordpiece(folder / "vocab.txt", settings)
    for vocab, merges in BPE_FILES:
        if (folder / vocab).exists() and (folder / merges).exists():
            return byte_bpe(folder / vocab, folder / merges, settings)
    is_sentencepiece = any(folder.glob("*.model")) or any(folder.glob("*.spm"))
    raise TokenizerError(
        f"{folder} holds no tokenizer that can be read here",
        "convert its SentencePiece model to a tokenizer.json"
        if is_sentencepiece
        else "looked for tokenizer.json, vocab.txt, and vocab.json with merges.txt",
    )


def wordpiece(path: Path, settings: dict[str, Any]) -> Tokenizer:
    """BERT's: clean, put spaces around Chinese characters, fold case and accents if uncased, cut at punctuation."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: BERT has entries for odd separators
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path}: cannot be read ({error})", "copy the file again") from None
    vocab = {token: number for number, token in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    roles = settle(usual_roles(vocab) | named_beside(path.parent, vocab), str(path))
    if roles.unk is None:
        raise TokenizerError(f"{path} has no unk token, which WordPiece needs", "is it BERT's vocab.txt?")
    is_uncased = all(token == token.lower() for token in vocab if token not in roles)
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=roles.unk))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", is_uncased),
        strip_accents=settings.get("strip_accents"),  # None: with the case
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{roles.bos} $A {roles.eos}",
        pair=f"{roles.bos} $A {roles.eos} $B:1 {roles.eos}:1",
        special_tokens=[(roles.bos, vocab[roles.bos]), (roles.eos, vocab[roles.eos])],
    )
    return marked(tokenizer, roles)


def byte_bpe(vocab_path: Path, merges_path: Path, settings: dict[str, Any]) -> Tokenizer:
    """GPT-2's cut into words, then merges of bytes. A vocabulary with a beginning and an end is framed as RoBERTa's.

    <s> a </s>        <s> a </s></s> b </s>                                          Liu et al. 2019
    """
    try:
        vocab, merges = models.BPE.read_file(str(vocab_path), str(merges_path))
    except Exception as error:  # the Rust library raises nothing more precise
        raise TokenizerError(
            f"{vocab_path} and {merges_path.name} cannot be read ({error})", "copy them again"
        ) from None
    if any(token.endswith("</w>") for token in vocab):
        raise TokenizerError(
            f"{vocab_path} ends words with </w>: it is not byte-level as GPT-2's", "convert it to a tokenizer.json"
        )
    roles = settle(usual_roles(vocab) | named_beside(vocab_path.parent, vocab), str(vocab_path))
    spaced = settings.get("add_prefix_space", False)
    tokenizer = Tokenizer(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    tokenizer.decoder = decoders.ByteLevel()
    if roles.bos != roles.eos:
        eos, bos = (roles.eos, vocab[roles.eos]), (roles.bos, vocab[roles.bos])
        tokenizer.post_processor = processors.RobertaProcessing(eos, bos, add_prefix_space=spaced)
    return marked(tokenizer, roles)


def marked(tokenizer: Tokenizer, roles: Roles) -> Tokenizer:
    """The same with the tokens that have a role marked as special. RoBERTa's mask takes in the space before it."""
    for token in dict.fromkeys(role for role in roles if role is not None):
        tokenizer.add_special_tokens([AddedToken(token, lstrip=token == "<mask>", normalized=False)])
    return tokenizer
