#!/usr/bin/env bash
# Build the image with whatever engine there is: image.sh NAME [BASE]
#
# BASE is the Python image that it stands on. With RELEASE=1 it has to be named by its digest, since a tag
# may mean another image tomorrow. PLATFORMS=linux/amd64,linux/arm64 builds for each of them, where the engine
# can run the others: podman and buildah make a manifest list NAME of them, docker an OCI archive in build/.
set -euo pipefail
name=$1
base=${2:-python:3.13-slim}

if [[ -n ${RELEASE:-} && $base != *@sha256:* ]]; then
  echo "image: a release needs BASE by its digest: BASE=python@sha256:..., not $base" >&2
  exit 2
fi
for engine in docker podman buildah; do
  if command -v "$engine" > /dev/null; then
    echo "image: $name from $base, with $engine${PLATFORMS:+, for $PLATFORMS}" >&2
    build=("$engine" build)
    result=(--tag "$name")
    if [[ -n ${PLATFORMS:-} && $engine == docker ]]; then
      # Its own store holds images of one platform only.
      build=(docker buildx build --platform "$PLATFORMS")
      result+=(--output "type=oci,dest=build/image.tar")
    elif [[ -n ${PLATFORMS:-} ]]; then
      build+=(--platform "$PLATFORMS")
      result=(--manifest "$name")
    fi
    exec "${build[@]}" --build-arg "BASE=$base" "${result[@]}" --file Containerfile .
  fi
done
echo "image: none of docker, podman and buildah is here" >&2
exit 1
