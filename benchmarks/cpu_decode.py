"""Translation speed on the CPU, compared with Hugging Face `generate` and CTranslate2: same weights, same work.

    python benchmarks/cpu_decode.py [--size base] [--batch 32] [--beam 4] [--repeats 5] [--out FILE]

Random float32 Marian weights with the sizes of Transformer-base (or -tiny), 24 source tokens, exactly 24 target tokens.
Every engine runs in a separate process, because two OpenMP runtimes in one process compete for the cores, with 1 and
with 2 threads. The engines take turns, and the result is the median of the repeats at each engine's better number of
threads. The other engines need `pip install transformers ctranslate2`.

    clearformer         the plain decoder
    compiled            `--engine compiled`, for batches of one sentence; it is compiled into the cache beforehand
    huggingface         `generate`
    ctranslate2         float32; ctranslate2-int8: int8 weights, so other outputs
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LENGTH = 24
SIZES = {"base": (512, 6, 8, 2048, 32000), "tiny": (128, 4, 4, 256, 10000)}
ENGINES = ("clearformer", "compiled", "huggingface", "ctranslate2", "ctranslate2-int8")


def marian(size):
    """The model for all engines, as a Hugging Face model."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    d_model, layers, heads, d_ff, vocab = SIZES[size]
    torch.manual_seed(0)
    side = {"layers": layers, "attention_heads": heads, "ffn_dim": d_ff}
    sizes = {f"{end}_{name}": value for name, value in side.items() for end in ("encoder", "decoder")}
    config = MarianConfig(
        vocab_size=vocab,
        d_model=d_model,
        max_position_embeddings=512,
        pad_token_id=vocab - 1,
        decoder_start_token_id=vocab - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
        activation_function="swish",
        scale_embedding=True,
        static_position_embeddings=True,
        **sizes,
    )
    return MarianMTModel(config).eval()


def save(size, folder):
    """Save the same weights for every engine: as a Hugging Face folder and as a CTranslate2 folder."""
    from ctranslate2.converters import transformers as converters

    model = marian(size)
    model.save_pretrained(folder / "huggingface")
    vocab = model.config.vocab_size
    names = [f"t{i}" for i in range(vocab)]
    names[0], names[-1] = "</s>", "<pad>"

    class Vocabulary:
        unk_token, eos_token, bos_token, pad_token = "t1", "</s>", "</s>", "<pad>"

    loader = converters.MarianMTLoader()
    spec = loader.get_model_spec(model)
    loader.set_vocabulary(spec, names[:-1])
    try:
        loader.set_config(spec.config, model, Vocabulary())
    except AttributeError:
        spec.config.decoder_start_token, spec.config.unk_token = "<pad>", "t1"
        spec.config.eos_token = spec.config.bos_token = "</s>"
    spec.validate()
    (folder / "ctranslate2").mkdir()
    spec.save(str(folder / "ctranslate2"))


def clearformer(folder, sources, beam, engine="torch"):
    import torch

    from clearformer.checkpoint import load_weights
    from clearformer.generation.decode import DecodeConfig
    from clearformer.generation.engine import Decoder, finished
    from clearformer.interop.huggingface.marian import import_folder
    from clearformer.layers.linear import pack
    from clearformer.memory import keep_freed_memory
    from clearformer.models.transformer import Transformer

    keep_freed_memory()  # as `clearformer translate` does
    config, weights = import_folder(folder / "huggingface")
    model = Transformer(config).eval()
    load_weights(model, weights, str(folder))
    model = pack(model)
    source = torch.tensor(sources)
    first = torch.full((len(sources),), config.target_vocab - 1)
    limits = torch.full((len(sources),), LENGTH)
    decode = DecodeConfig(beam=beam, min_length=LENGTH)
    decoder = Decoder(model, engine, lambda text: print(text, file=sys.stderr))

    @torch.inference_mode()
    def translate():
        outputs = finished(decoder.decode(source, None, first, 0, limits, decode, beam))
        assert all(len(row[0].tokens) == LENGTH for row in outputs)

    return translate


def compiled(folder, sources, beam):
    return clearformer(folder, sources, beam, "compiled")


def huggingface(folder, sources, beam):
    import torch
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(folder / "huggingface").eval()
    source = torch.tensor(sources)
    settings = {"num_beams": beam, "do_sample": False, "min_new_tokens": LENGTH, "max_new_tokens": LENGTH}

    @torch.inference_mode()
    def translate():
        outputs = model.generate(input_ids=source, attention_mask=torch.ones_like(source), **settings)
        assert outputs.shape[1] == LENGTH + 1

    return translate


def ctranslate2(folder, sources, beam, threads, precision):
    import ctranslate2 as engine

    translator = engine.Translator(
        str(folder / "ctranslate2"), compute_type=precision, inter_threads=1, intra_threads=threads
    )
    named = [[f"t{token}" for token in source] for source in sources]
    settings = {"beam_size": beam, "min_decoding_length": LENGTH, "max_decoding_length": LENGTH}

    def translate():
        outputs = translator.translate_batch(named, **settings)
        assert all(len(row.hypotheses[0]) == LENGTH for row in outputs)

    return translate


def measure(engine, folder, vocab, batch, beam, threads):
    """Print the seconds of the fastest of several runs, after one warm-up run. Runs in a separate process."""
    draw = random.Random(0)
    sources = [[draw.randint(3, vocab - 10) for _ in range(LENGTH)] for _ in range(batch)]
    if engine.startswith("ctranslate2"):
        translate = ctranslate2(folder, sources, beam, threads, "int8" if engine.endswith("int8") else "float32")
    else:
        import torch

        torch.set_num_threads(threads)
        translate = {"clearformer": clearformer, "compiled": compiled, "huggingface": huggingface}[engine](
            folder, sources, beam
        )
    translate()
    times = []
    for _ in range(2 if batch > 1 else 10):
        start = time.perf_counter()
        translate()
        times.append(time.perf_counter() - start)
    print(json.dumps(min(times)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=SIZES)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "cpu-decode.json")
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "FOLDER", "THREADS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    vocab = SIZES[arguments.size][-1]
    if arguments.measure:
        engine, folder, threads = arguments.measure
        measure(engine, Path(folder), vocab, arguments.batch, arguments.beam, int(threads))
        return
    engines = [engine for engine in arguments.engines.split(",") if engine != "compiled" or arguments.batch == 1]
    rates = {engine: {1: [], 2: []} for engine in engines}
    work = ["--size", arguments.size, "--batch", str(arguments.batch), "--beam", str(arguments.beam)]
    with tempfile.TemporaryDirectory() as name:
        save(arguments.size, Path(name))
        if "compiled" in rates:
            command = [sys.executable, __file__, *work, "--measure", "compiled", name, "2"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # from here on, the cache is warm
        for _ in range(arguments.repeats):
            for threads in (1, 2):
                for engine in rates:
                    command = [sys.executable, __file__, *work, "--measure", engine, name, str(threads)]
                    seconds = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                    rates[engine][threads].append(arguments.batch * LENGTH / seconds)
                    print(
                        f"{engine:12} threads: {threads} {rates[engine][threads][-1]:9,.0f} tokens/s", file=sys.stderr
                    )
    medians = {e: {t: round(statistics.median(values)) for t, values in by.items()} for e, by in rates.items()}
    best = {engine: max(by.values()) for engine, by in medians.items()}
    ours = "compiled" if "compiled" in best else "clearformer"
    ratios = {
        f"over_{'plain' if engine == 'clearformer' else engine}": round(best[ours] / best[engine], 2)
        for engine in best
        if engine != ours
    }
    from importlib.metadata import version

    from provenance import record, stamp

    peers = {package: version(package) for package in ("transformers", "ctranslate2")}
    repeats = ["--repeats", str(arguments.repeats), "--engines", ",".join(engines)]
    provenance = stamp(" ".join(["python benchmarks/cpu_decode.py", *work, *repeats]), **peers)
    record({"tokens_per_second": best, "by_threads": medians, **ratios, **provenance}, arguments.out)


if __name__ == "__main__":
    main()
