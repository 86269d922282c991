# Every habit of the house under one name. Without `just`: each line below works by itself.

# list the habits
default:
    @just --list --unsorted

# build the server and play one call to its verdict
demo *options:
    ./run demo {{options}}

# everything that CI checks, in CI's order
test:
    ./run test

# one crate's tests, while working on it
test-one crate *filter:
    cargo test -p {{crate}} {{filter}}

# format every crate
fmt:
    cargo xtask fmt

# clippy on every target; a warning is an error
lint:
    cargo xtask lint

# floors, purity line, names, lengths, migrations
tidy:
    cargo xtask tidy

# other people's clients and bridges against the simulated model and the server (needs Python, Node and their registries)
peers *names:
    cargo xtask peers {{names}}

# every benchmark, built for speed
bench *filter:
    cargo bench --workspace --benches -- {{filter}}

# the documentation of our own crates
doc:
    cargo doc --workspace --no-deps

# licences, bans, sources, advisories (needs cargo-deny)
deny:
    cargo deny check
