#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes ./configure from configure.ac; needs autoconf, automake and libtool.
cd "$(dirname "$0")" && exec autoreconf --install --warnings=all
