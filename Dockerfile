# A node of pybroker: `docker build -t pybroker .`, then `docker run -p 9092:9092 pybroker`.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY pybroker pybroker
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/pybroker \
 && pip --python /opt/pybroker/bin/python install --no-cache-dir /wheels/*.whl

FROM ${BASE}
RUN groupadd --gid 1000 pybroker \
 && useradd --uid 1000 --gid pybroker --no-create-home --home-dir /var/lib/pybroker --shell /usr/sbin/nologin pybroker \
 && install -d -o pybroker -g pybroker /var/lib/pybroker
COPY --from=build /opt/pybroker /opt/pybroker
COPY config/container.properties /etc/pybroker/server.properties
ENV PATH=/opt/pybroker/bin:$PATH
# By number, so that an orchestrator can tell that it is not root.
USER 1000:1000
WORKDIR /var/lib/pybroker
VOLUME /var/lib/pybroker
EXPOSE 9092
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["pybroker", "ping", "localhost:9092"]
# No shell in between: SIGTERM reaches the node, which hands over its leaderships and closes its logs. Give it time for that
# (`docker stop -t 60`).
ENTRYPOINT ["pybroker"]
CMD ["start", "/etc/pybroker/server.properties", "--env", "--format-if-needed"]
