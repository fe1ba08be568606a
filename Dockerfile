# One image for every role. `docker-compose up` builds and runs it; by itself:
#     docker build --tag aclearn .
#     docker run --rm aclearn --help
#
# TORCH_INDEX is the package index that torch comes from, beside PyPI: PyTorch's CPU builds. Empty takes
# PyPI's own, which brings CUDA; https://download.pytorch.org/whl/cu128 and the like bring that CUDA.
# EXTRAS are extras of aclearn, separated by commas: resident brings NVIDIA Warp, 410 MB.

FROM python:3.11-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --quiet --no-deps --wheel-dir /wheel . \
    # its dependencies by themselves, so that a change of our code leaves the layer that installs them alone
    && python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
       > /requirements.txt


FROM python:3.11-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY constraints.txt /
# torch first and without the packages it needs: only torch is looked for in its index, and an index that
# cannot be reached costs seconds, not minutes
RUN pip install --quiet --no-deps --retries 2 ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    "$(grep '^torch==' /constraints.txt)" \
    # 170 MB that only C++ extensions and torch's own tests need
    && cd "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch" \
    && rm -rf include test bin/test_* bin/*Test bin/protoc*
COPY --from=build /requirements.txt /
RUN pip install --quiet --constraint /constraints.txt --requirement /requirements.txt
COPY --from=build /wheel /wheel
ARG EXTRAS=
RUN pip install --quiet --no-deps /wheel/*.whl \
    && pip install --quiet --constraint /constraints.txt "aclearn[dashboard,prometheus${EXTRAS:+,$EXTRAS}]" \
    && useradd --create-home aclearn \
    && mkdir -m 1777 /run/aclearn /var/cache/aclearn

# each role computes in threads of its own; a cache needs a folder that any user may write
ENV OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 MPLCONFIGDIR=/tmp \
    ACLEARN_RUNTIME_DIR=/run/aclearn ACLEARN_KERNEL_CACHE=/var/cache/aclearn/kernels
WORKDIR /work
USER aclearn
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["aclearn", "health"]
ENTRYPOINT ["aclearn"]
CMD ["--help"]
