"""A translator behind FastAPI as it is often written: `generate` of Hugging Face, one request at a time.

    clearformer export en-fr-small --out FOLDER
    python benchmarks/bare_generate.py FOLDER [--device cpu] [--threads N]

It prints its URL. It takes the requests of serve_http.py: {"text": …, "beam": …}.
"""

import argparse
import socket

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging

logging.set_verbosity_error()
parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--device", default="cpu")
parser.add_argument("--threads", type=int)
arguments = parser.parse_args()
if arguments.threads:
    torch.set_num_threads(arguments.threads)
app = FastAPI()
tokenizer = AutoTokenizer.from_pretrained(arguments.folder)
model = AutoModelForSeq2SeqLM.from_pretrained(arguments.folder).to(arguments.device).eval()


class TranslateRequest(BaseModel):
    text: str
    beam: int = 1


@app.post("/v1/translate")
async def translate(request: TranslateRequest):
    inputs = tokenizer([request.text], return_tensors="pt").to(arguments.device)
    n_tokens = 2 * inputs["input_ids"].size(1) + 16  # max_ratio and max_extra of our [decode]
    with torch.inference_mode():
        output = model.generate(**inputs, num_beams=request.beam, max_new_tokens=n_tokens)
    text = tokenizer.batch_decode(output, skip_special_tokens=True)[0]
    return {"translations": [{"source": request.text, "translation": text}]}


with socket.create_server(("127.0.0.1", 0)) as listener:
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
