# syntax=docker/dockerfile:1
# docker build -t answerback .

# --- build: the toolchain of rust-toolchain.toml, a C compiler, and nothing else ---------------------------------------
FROM rust:1.95.0-bookworm AS build
WORKDIR /src
COPY . .
# The caches stay with the builder: a second build compiles our crates only. The binary is copied out because a cache
# does not end up in the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --package answerback \
    && install -D target/release/answerback /out/answerback \
    && install -d -m 0750 /out/data

# --- run: the binary, the system's certificates, no shell needed, no root ----------------------------------------------
FROM debian:bookworm-slim
# The certificates are needed by the clients of the model and the tools, which refuse to start without them.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*

LABEL org.opencontainers.image.title="answerback" \
      org.opencontainers.image.description="Realtime voice agents on the telephone, with tool calls as durable operations" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"

COPY --from=build /out/answerback /usr/local/bin/answerback
COPY --from=build /src/LICENSE-MIT /src/LICENSE-APACHE /usr/share/doc/answerback/
# A number, so that Kubernetes can see that it is not root.
COPY --from=build --chown=10001:10001 /out/data /data

USER 10001:10001
# The one place that is written: the database, its lock and the recordings. All else may be read-only.
VOLUME /data
WORKDIR /data
# The config's default is loopback, which nobody reaches from outside the container. The environment overrides the files.
ENV ANSWERBACK__SERVER__BIND=0.0.0.0:8080
EXPOSE 8080
# A stop lets running calls finish; SIGTERM is Docker's default and stated for the reader.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/answerback"]
CMD ["serve"]
