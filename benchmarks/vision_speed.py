"""Training speed of ResNet-50 and ViT-B/16 at 224×224, compared with torchvision in the same bare loop.

    python benchmarks/vision_speed.py [--only resnet50] [--images 256] [--out FILE]

Images on the device, bf16 autocast, cross-entropy over 1,000 classes, fused SGD with momentum (ResNet) or AdamW (ViT):
forward, backward, step. Both models are compiled whole, with their losses, and use the channels-last memory format.
Results are images per second, the median of five timings of 20 steps each; the two take turns in one process.
"""

import argparse
import gc
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from provenance import RESULTS, record, stamp

from clearformer.data.batch import ImageBatch
from clearformer.models.build import build_model, model_config
from clearformer.training.compiling import compiled

SIZE, CLASSES, STEPS, REPEATS = 224, 1000, 20, 5
MODELS = {"resnet50": "resnet50", "vit_b_16": "vit-b-16"}  # torchvision's name -> preset


def ours(name, batch):
    model = build_model(model_config(MODELS[name])).to(batch.pixels.device).train()

    def objective(model, batch):
        return F.cross_entropy(model(batch).float(), batch.classes, reduction="sum"), batch.n_tokens

    loss = compiled(objective, model, "whole")
    return training(name, model, lambda: loss(model, batch)[0] / len(batch))


def theirs(name, batch):
    import torchvision

    model = getattr(torchvision.models, name)(weights=None)
    model = model.to(batch.pixels.device, memory_format=torch.channels_last).train()

    @torch.compile
    def loss(pixels, classes):
        return F.cross_entropy(model(pixels).float(), classes)

    return training(name, model, lambda: loss(batch.pixels, batch.classes))


def training(name, model, loss):
    """The bare loop: a function that performs one step."""
    is_cuda = next(model.parameters()).is_cuda
    if name.startswith("resnet"):
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=is_cuda)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=is_cuda)

    def step():
        with torch.autocast("cuda" if is_cuda else "cpu", torch.bfloat16):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def timed(engines, n_images, device):
    """Images per second of each engine. Ours runs without cuDNN's attention, as always; torchvision uses it."""
    rates = {name: [] for name in engines}
    for turn in range(REPEATS + 1):  # the first turn compiles and warms up
        for name, step in engines.items():
            torch.backends.cuda.enable_cudnn_sdp(name == "torchvision")
            finish(device)
            begun = time.perf_counter()
            for _ in range(STEPS):
                step()
            finish(device)
            if turn:
                rates[name].append(STEPS * n_images / (time.perf_counter() - begun))
    return {name: round(statistics.median(values)) for name, values in rates.items()}


def finish(device):
    if device == "cuda":
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "vision-speed.json")
    parser.add_argument("--only", default="", help="measure only models with this text in their name")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=256, help="batch size")
    parser.add_argument("--alone", action="store_true", help="do not compare with torchvision (if it is not installed)")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    pixels = torch.randn(arguments.images, 3, SIZE, SIZE, device=arguments.device)
    classes = torch.randint(CLASSES, (arguments.images,), device=arguments.device)
    batch = ImageBatch(pixels.contiguous(memory_format=torch.channels_last), classes)
    rows, more = {}, {}
    for name in MODELS:
        if arguments.only not in name:
            continue
        torch.manual_seed(0)
        engines = {"clearformer": ours(name, batch)}
        if not arguments.alone:
            engines["torchvision"] = theirs(name, batch)
        rows[name] = speeds = timed(engines, len(batch), arguments.device)
        if "torchvision" in speeds:
            speeds["over_torchvision"] = round(speeds["clearformer"] / speeds["torchvision"], 3)
        print(name, speeds, flush=True)
        del engines
        gc.collect()
        torch._dynamo.reset()
    if not arguments.alone:
        import torchvision

        more["torchvision"] = torchvision.__version__
    record({"images_per_second": rows, **stamp("python benchmarks/vision_speed.py", **more)}, arguments.out)


if __name__ == "__main__":
    main()
