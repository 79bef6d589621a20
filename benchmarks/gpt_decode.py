"""Writing speed of GPT-2 on the CPU beside Hugging Face `generate`: same weights, same greedy tokens.

    python benchmarks/gpt_decode.py [--batches 1,16] [--repeats 5] [--out FILE]

Random weights at GPT-2's 124M sizes, prompts of 32 tokens, exactly 64 tokens more, float32. Each engine runs in a
process of its own at 1 and at 2 threads; the engines take turns, and the figure is the median of the repeats at each
engine's better number of threads. Both must write the same tokens. At batch 1 a step cannot be faster than reading
the weights: the share of the memory's bandwidth, measured here by summing an array of a gigabyte, says how close it is.
The peer needs `pip install transformers`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPT, NEW = 32, 64
ENGINES = ("clearformer", "huggingface")


def save(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).eval()
    for name, parameter in model.named_parameters():  # loud enough that words differ, and the likeliest is clear
        if name.endswith("wte.weight"):
            parameter.data *= 4
    model.save_pretrained(folder)


def prompts(batch):
    import torch

    return torch.randint(50000, (batch, PROMPT), generator=torch.Generator().manual_seed(1))


def clearformer(folder, batch):
    import torch

    from clearformer.checkpoint import load_weights
    from clearformer.generation.decode import sample
    from clearformer.generation.sampling import greedy
    from clearformer.interop.huggingface.gpt2 import import_folder
    from clearformer.layers.linear import pack
    from clearformer.memory import keep_freed_memory
    from clearformer.models.gpt import GPT

    keep_freed_memory()  # as `clearformer generate` does
    config, weights = import_folder(folder)
    model = GPT(config).eval()
    load_weights(model, weights, str(folder))
    model = pack(model)
    tokens, limits = prompts(batch), torch.full((batch,), NEW)

    @torch.inference_mode()
    def go():
        state = model.start(tokens[:, :-1], None)
        found = sample(model, state, tokens[:, -1], 50256, limits, greedy, min_length=NEW)
        return [row[0].tokens for row in found]

    return go


def huggingface(folder, batch):
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    tokens = prompts(batch)
    settings = {"do_sample": False, "min_new_tokens": NEW, "max_new_tokens": NEW, "pad_token_id": 50256}

    @torch.inference_mode()
    def go():
        found = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), **settings)
        return found[:, PROMPT:].tolist()

    return go


def bandwidth():
    """Bytes a second that a sum over a gigabyte reads, with as many threads as torch has."""
    import torch

    array, times = torch.ones(2**28), []
    for _ in range(5):
        start = time.perf_counter()
        array.sum()
        times.append(time.perf_counter() - start)
    return array.nbytes / min(times)


def measure(engine, folder, batch, threads):
    """In a process of its own: seconds of the faster of two runs after one to warm up, and what was written."""
    import torch

    torch.set_num_threads(threads)
    go = {"clearformer": clearformer, "huggingface": huggingface}[engine](folder, batch)
    written, times = go(), []
    for _ in range(2):
        start = time.perf_counter()
        go()
        times.append(time.perf_counter() - start)
    print(json.dumps({"seconds": min(times), "written": written, "bandwidth": bandwidth()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gpt-decode.json")
    parser.add_argument("--measure", nargs=4, metavar=("ENGINE", "FOLDER", "BATCH", "THREADS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        engine, folder, batch, threads = arguments.measure
        measure(engine, Path(folder), int(batch), int(threads))
        return
    result = {}
    with tempfile.TemporaryDirectory() as name:
        save(name)
        for batch in map(int, arguments.batches.split(",")):
            rates = {engine: {1: [], 2: []} for engine in ENGINES}
            written, widths = {}, []
            for _ in range(arguments.repeats):
                for threads in (1, 2):
                    for engine in ENGINES:
                        command = [sys.executable, __file__, "--measure", engine, name, str(batch), str(threads)]
                        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                        rates[engine][threads].append(batch * NEW / told["seconds"])
                        written[engine] = told["written"]
                        if threads == 2:
                            widths.append(told["bandwidth"])
                        print(f"{batch:3} {engine:12} {threads} {rates[engine][threads][-1]:8,.1f}", file=sys.stderr)
            assert written["clearformer"] == written["huggingface"], "the engines wrote different tokens"
            medians = {e: {t: round(statistics.median(v), 1) for t, v in by.items()} for e, by in rates.items()}
            best = {engine: max(by.values()) for engine, by in medians.items()}
            ratio = round(best["clearformer"] / best["huggingface"], 2)
            result[f"batch_{batch}"] = {"tokens_per_second": best, "by_threads": medians, "over_huggingface": ratio}
            if batch == 1:
                read = 4 * (124_439_808 - 1024 * 768)  # every weight but the table of positions, once a token
                share = best["clearformer"] * read / statistics.median(widths)
                result[f"batch_{batch}"] |= {
                    "gigabytes_per_second": round(statistics.median(widths) / 1e9, 1),
                    "share_of_bandwidth": round(share, 2),
                }
    from importlib.metadata import version

    from provenance import record, stamp

    made = stamp("python benchmarks/gpt_decode.py", transformers=version("transformers"))
    what = f"GPT-2 124M, float32, greedy, {PROMPT} + {NEW} tokens, the same tokens from both"
    record({"what": what, **result, **made}, arguments.out)


if __name__ == "__main__":
    main()
