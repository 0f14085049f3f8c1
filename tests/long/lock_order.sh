#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=7G minutes=60 about=600s
# Locks in the order of runtime/base/locks.def, in a build that ends a program where they are not.
exec make -C "${builddir:-.}" check-lock-order
