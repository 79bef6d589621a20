"""Generation speed of GPT-2 on the CPU, compared with Hugging Face `generate`: same weights, same greedy tokens.

    python benchmarks/gpt_decode.py [--batches 1,16] [--repeats 5] [--out FILE]

Random float32 weights with the sizes of GPT-2 124M, prompts of 32 tokens, exactly 64 new tokens. Each engine runs in a
separate process with 1 and with 2 threads. The engines take turns, and the result is the median of the repeats at each
engine's better number of threads. Both must generate the same tokens. At batch 1, a step cannot be faster than reading
the weights; the fraction of the memory bandwidth, measured by summing an array of one gigabyte, shows how close it is.
The other engine needs `pip install transformers`.
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
    for name, parameter in model.named_parameters():  # larger embeddings: tokens differ, and the most probable is clear
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
    def generate():
        state = model.start(tokens[:, :-1], None)
        outputs = sample(model, state, tokens[:, -1], 50256, limits, greedy, min_length=NEW)
        return [row[0].tokens for row in outputs]

    return generate


def huggingface(folder, batch):
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    tokens = prompts(batch)
    settings = {"do_sample": False, "min_new_tokens": NEW, "max_new_tokens": NEW, "pad_token_id": 50256}

    @torch.inference_mode()
    def generate():
        outputs = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), **settings)
        return outputs[:, PROMPT:].tolist()

    return generate


def bandwidth():
    """Bytes per second read by a sum over one gigabyte, with torch's number of threads."""
    import torch

    array, times = torch.ones(2**28), []
    for _ in range(5):
        start = time.perf_counter()
        array.sum()
        times.append(time.perf_counter() - start)
    return array.nbytes / min(times)


def measure(engine, folder, batch, threads):
    """Print the seconds of the faster of two runs, after a warm-up run, and the tokens. Runs in a separate process."""
    import torch

    torch.set_num_threads(threads)
    generate = {"clearformer": clearformer, "huggingface": huggingface}[engine](folder, batch)
    written, times = generate(), []
    for _ in range(2):
        start = time.perf_counter()
        generate()
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
                        done = subprocess.run(command, check=True, capture_output=True, text=True)
                        measured = json.loads(done.stdout)
                        rates[engine][threads].append(batch * NEW / measured["seconds"])
                        written[engine] = measured["written"]
                        if threads == 2:
                            widths.append(measured["bandwidth"])
                        print(f"{batch:3} {engine:12} {threads} {rates[engine][threads][-1]:8,.1f}", file=sys.stderr)
            assert written["clearformer"] == written["huggingface"], "the engines generated different tokens"
            medians = {e: {t: round(statistics.median(v), 1) for t, v in by.items()} for e, by in rates.items()}
            best = {engine: max(by.values()) for engine, by in medians.items()}
            ratio = round(best["clearformer"] / best["huggingface"], 2)
            result[f"batch_{batch}"] = {"tokens_per_second": best, "by_threads": medians, "over_huggingface": ratio}
            if batch == 1:
                read = 4 * (124_439_808 - 1024 * 768)  # every weight except the position table, once per token
                fraction = best["clearformer"] * read / statistics.median(widths)
                result[f"batch_{batch}"] |= {
                    "gigabytes_per_second": round(statistics.median(widths) / 1e9, 1),
                    "share_of_bandwidth": round(fraction, 2),
                }
    from importlib.metadata import version

    from provenance import record, stamp

    provenance = stamp("python benchmarks/gpt_decode.py", transformers=version("transformers"))
    what = f"GPT-2 124M, float32, greedy, {PROMPT} + {NEW} tokens, same tokens from both engines"
    record({"what": what, **result, **provenance}, arguments.out)


if __name__ == "__main__":
    main()
