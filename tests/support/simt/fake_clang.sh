#!/bin/sh
# Stands in for clang as the compiler of HIP: the text is the code object, for emulated_device.cc. It
# keeps its standard output open until it has read all, as who runs it expects.
if [ "$1" = --version ]; then
  echo "clang version 0.1"
  exit
fi
while [ "$1" != -o ]; do shift; done
cat > "$2"
