"""A Hugging Face folder of GPT-2 124M with random weights and GPT-2's tokenizer, for measurements without a download.

    python benchmarks/random_gpt2.py runs/gpt2-random --vocabulary FOLDER
    clearformer finetune --model runs/gpt2-random --text FILE --steps 300 --out runs/gpt2     it then writes words

FOLDER has gpt2-encoder.json.gz and gpt2-vocab.bpe.gz, the files vocab.json and merges.txt of GPT-2.
"""

import argparse
import gzip
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

FILES = {"vocab.json": "gpt2-encoder.json.gz", "merges.txt": "gpt2-vocab.bpe.gz"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocabulary", type=Path, required=True, help="folder with the two files of the tokenizer")
    options = parser.parse_args()
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config()).save_pretrained(options.out)
    for name, origin in FILES.items():
        (options.out / name).write_bytes(gzip.decompress((options.vocabulary / origin).read_bytes()))


if __name__ == "__main__":
    main()
