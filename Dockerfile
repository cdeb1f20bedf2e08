# The image of the command line; that of collector and workers is simulator/Dockerfile's. From this folder:
#     docker build -t iot-database-benchmark-cli:0.2.0 --build-arg VERSION=0.2.0 .

ARG PYTHON_VERSION=3.13
ARG GO_VERSION=1.26

# Go's checksum database vouches for what is compiled.
FROM golang:${GO_VERSION} AS helm
ARG HELM_VERSION=3.19.5
RUN CGO_ENABLED=0 go install -trimpath \
    -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v${HELM_VERSION}" \
    "helm.sh/helm/v3/cmd/helm@v${HELM_VERSION}"

FROM python:${PYTHON_VERSION}-slim AS build
ARG HATCHLING_VERSION=1.33.0
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.txt /
RUN python -m venv /opt/venv && /opt/venv/bin/pip install --require-hashes -r /requirements.txt
RUN python -m venv /opt/build && /opt/build/bin/pip install "hatchling==${HATCHLING_VERSION}"
COPY . /source
RUN cd /source && /opt/build/bin/python -m hatchling build -t wheel -d /wheel \
 && /opt/venv/bin/pip install --no-deps /wheel/*.whl \
 && /opt/venv/bin/pip uninstall --quiet --yes pip

# The same base, so that the virtual environment finds its Python.
FROM python:${PYTHON_VERSION}-slim
ARG VERSION=unknown
LABEL org.opencontainers.image.title="iot-database-benchmark-cli" \
      org.opencontainers.image.description="Command line of the IoT database benchmark" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=helm /go/bin/helm /usr/local/bin/helm
COPY --from=build /opt/venv /opt/venv
# Nothing is written but to /tmp and the folder for results: all else may be read-only.
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /work
USER 10001:10001
ENTRYPOINT ["iotbench"]
