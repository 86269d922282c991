#!/bin/sh
# How well each voice detector hears: real speech in three languages through G.711, and every sound of a line that is no
# caller. Prints the tables of docs/vad.md, which explains them.
#
#   benches/vad.sh [PROMPTS [NAME]]     80 sentences a speaker and all detectors if nothing is said; NAME picks detectors
#
# The recordings are Debian packages (CC-BY-SA and public domain, none is kept in this tree). They are downloaded and unpacked
# into MATERIAL, target/vad-material if not set, without installing them. Needs apt-get and dpkg; `apt-get update` first
# where they are not found. PROFILE=release measures the cost as shipped; bench-fast, the default, builds sooner.
set -eu
cd "$(dirname "$0")/.."

prompts=${1:-80}
name=${2:-}
profile=${PROFILE:-bench-fast}
material=${MATERIAL:-${CARGO_TARGET_DIR:-target}/vad-material}

for package in asterisk-core-sounds-en-wav asterisk-core-sounds-es-wav asterisk-core-sounds-fr-wav \
    asterisk-moh-opsound-wav pocketsphinx-testdata; do
    [ -d "$material/usr/share/doc/$package" ] && continue
    mkdir -p "$material"
    (cd "$material" && apt-get -q download "$package" >&2) || { echo "vad.sh: $package cannot be downloaded" >&2; exit 1; }
    dpkg -x "$material/${package}"_*.deb "$material"
    rm -f "$material/${package}"_*.deb
done

cargo build --quiet --profile "$profile" -p audio --example vad
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD -- crates/audio crates/conversation 2>/dev/null || commit="$commit with changes"
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$commit, $(date -u +%F), $processor, $(nproc) cores, $(uname -sr), profile $profile, load $(cut -d ' ' -f 1 /proc/loadavg)," \
    "\`benches/vad.sh $prompts${name:+ $name}\`"
echo
"${CARGO_TARGET_DIR:-target}/$profile/examples/vad" "$material" "$prompts" "$name"
