#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every name of the vendor's header is exported, and found by name and version.
set -eu
sim=${builddir:?}/tests/sim
exec "$sim/simgpu-run" "$sim/proc_test" "$sim/driver_names.txt"
