"""CTranslate2 in a process without torch: two OpenMP runtimes in one process compete for the cores."""

from typing import Any

from clearformer.speed.context import Context, rates
from clearformer.speed.models import SIZES, as_text, ctranslate2_folder, random_ids, token_names


def translate(context: Context, size: str, batch: int, beam: int, length: int, precision: str = "float32") -> Any:
    import ctranslate2

    folder = str(ctranslate2_folder(context, size))
    settings = {"inter_threads": 1, "intra_threads": context.threads, "compute_type": precision}
    translator = ctranslate2.Translator(folder, device="cpu", **settings)
    rows = as_text(random_ids(batch, length - 1, SIZES[size][-1]))
    sources = [[*text.split(), "</s>"] for text in rows]
    limits = {"min_decoding_length": length, "max_decoding_length": length}
    outputs: list[list[str]] = []

    def work() -> None:
        results = translator.translate_batch(sources, beam_size=beam, **limits)
        outputs[:] = [result.hypotheses[0] for result in results]

    values = rates(work, batch * length, context)
    number = {name: i for i, name in enumerate(token_names(SIZES[size][-1]))}
    return {"values": values, "tokens": [[number[name] for name in row] for row in outputs[:4]]}
