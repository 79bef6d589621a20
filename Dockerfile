# A server of the bundled translator, or of your models: docs/serve.md.
#
#   docker build -t my-translator .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/key.txt:/run/key:ro" -v "$PWD/runs:/models:ro" my-translator --model /models/mine
#
# The server listens at all addresses of its container, so that it needs a key. Inside, key.txt must be readable by its
# owner alone, who is the user 10001: chown 10001 key.txt; chmod 400 key.txt.
#
# Another image of Python, or another index of torch's builds, such as a mirror:
#   docker build --build-arg PYTHON=python:3.13-slim --build-arg TORCH_INDEX=https://mirror.example/torch/cpu .
ARG PYTHON=python:3.12-slim
FROM ${PYTHON}
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

RUN useradd --uid 10001 --create-home server
WORKDIR /app
# torch first, from the index of builds for the CPU: the default build brings gigabytes of CUDA libraries.
RUN pip install --no-cache-dir --index-url ${TORCH_INDEX} "torch>=2.11,<2.14"
COPY pyproject.toml README.md LICENSE ./
COPY clearformer ./clearformer
RUN pip install --no-cache-dir ".[audio,images,serve]"

USER server
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["clearformer", "serve", "--host", "0.0.0.0", "--port", "8000", "--api-key-file", "/run/key"]
