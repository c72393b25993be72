#!/usr/bin/env bash
# Build the image with whatever engine there is: image.sh NAME [BASE]
#
# BASE is the Python image that it stands on. With RELEASE=1 it has to be named by its digest, since a tag
# may mean another image tomorrow.
set -euo pipefail
name=$1
base=${2:-python:3.13-slim}

if [[ -n ${RELEASE:-} && $base != *@sha256:* ]]; then
  echo "image: a release needs BASE by its digest: BASE=python@sha256:..., not $base" >&2
  exit 2
fi
for engine in docker podman buildah; do
  if command -v "$engine" > /dev/null; then
    echo "image: $name from $base, with $engine" >&2
    exec "$engine" build --build-arg "BASE=$base" --tag "$name" --file Containerfile .
  fi
done
echo "image: none of docker, podman and buildah is here" >&2
exit 1
