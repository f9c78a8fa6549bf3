"""deploy/Dockerfile as an image: really built, and run as the chart runs it (`make image-check`, and `make soak`).

Podman builds and runs it; the base image, which comes from a registry of images, is replaced by a stand-in made of
Debian's packages (module `building`). As root, on Linux, a few minutes, and only when asked for by its path.
"""
