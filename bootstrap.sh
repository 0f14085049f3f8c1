#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a bare clone on Debian 12 to a build, a demonstration or the whole check.
#
#   ./bootstrap.sh demo          trains a small GPT, kills it several times, resumes it, compares
#   ./bootstrap.sh demo-twin     the same by one command that nobody starts again: a twin takes over
#   ./bootstrap.sh demo-cluster  the same on four nodes (namespaces), of which one is destroyed; a spare one takes its place
#   ./bootstrap.sh demo-torch    the same with PyTorch from PyPI, which it installs (5 GB)
#   ./bootstrap.sh check         builds and runs every test suite that needs no large packages
#   ./bootstrap.sh check-frameworks
#                                the other ones: PyTorch, other stacks, savers; installs what they need (9 GB)
#   ./bootstrap.sh check-long    campaigns and whole sweeps of all of these, which take hours; PART=2/5 is one of five parts
#   ./bootstrap.sh fuzz          gives parsers inputs that nobody has thought of, FUZZ_SEC seconds each; installs clang
#   ./bootstrap.sh torch         installs PyTorch (5 GB) where they look for it, unless it is there, and beside it
#                                Lightning, accelerate, transformers and DeepSpeed (400 MB), JAX, TensorFlow, CuPy, numba and Orbax (3.5 GB)
#   ./bootstrap.sh build [DIR]   configures in DIR (default: build), builds everything, the tests'
#                                programs included, and installs into DIR/inst
set -eu

top=$(cd "$(dirname "$0")" && pwd)
jobs=$(nproc 2>/dev/null || echo 2)
packages="gcc g++ make autoconf automake libtool pkg-config python3 python3-venv liburing-dev libxxhash-dev
libjson-c-dev zlib1g-dev libzstd-dev libncurses-dev xz-utils strace fio shellcheck procps util-linux libpython3.11-testsuite libjemalloc2
libtcmalloc-minimal4 btrfs-progs libslurm-dev slurmctld slurmd slurm-client munge libucx-dev libsodium-dev libisal-dev iproute2
libopenmpi-dev openmpi-bin bindfs fuse3 iperf3 valgrind"

# For `make check` alone, and for `make fuzz`.
check_packages="clang-format ruby"
fuzz_packages="clang libclang-rt-dev"
more_packages=

say() { printf '%s\n' "bootstrap: $*"; }
die() { printf '%s\n' "bootstrap: $*" >&2; exit 1; }

missing_packages() {
	for package in $packages $more_packages; do
		dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || printf '%s ' "$package"
	done
}

install_packages() {
	command -v dpkg-query >/dev/null 2>&1 || return 0 # not Debian: configure says what it lacks
	missing=$(missing_packages)
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		die "some packages are missing; as root: apt-get install -y $missing"
	fi
	say "installing $missing"
	apt-get update -qq || say "apt-get update failed; trying with the lists that are here"
	# shellcheck disable=SC2086 # a list of words
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# Prints the folder with cuda.h; without a toolkit the headers come from the vendor's wheels, of the release whose calls
# shim/driver_symbols.txt lists: a later one has more, which tests/preload/exports.sh would miss.
cuda_headers() {
	for dir in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
		if [ -n "$dir" ] && [ -r "$dir/include/cuda.h" ]; then
			printf '%s\n' "$dir"
			return 0
		fi
	done
	if [ ! -r "$1/nvidia/cu13/include/cuda.h" ]; then
		mkdir -p "$1"
		say "no CUDA toolkit here: fetching its headers" >&2
		python3 -m venv "$1/venv" >/dev/null
		"$1/venv/bin/python" -m pip download -q --no-deps -d "$1" 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' >&2
		for wheel in "$1"/*.whl; do
			python3 -m zipfile -e "$wheel" "$1"
		done
	fi
	printf '%s\n' "$1/nvidia/cu13"
}

absolute() {
	case $1 in
	/*) printf '%s\n' "$1" ;;
	*) printf '%s\n' "$PWD/$1" ;;
	esac
}

# Ends the script, before anything is made or installed, where make, a shell or LD_PRELOAD would take apart a folder's
# path, by its name or by what that is a link to. Whoever calls configure hears it from m4/tpck_place.m4.
check_path() {
	for path in "$2" "$(realpath -m -- "$2")"; do
		bad=$(printf '%s' "$path" | LC_ALL=C tr '\n' ' ' | LC_ALL=C tr -d 'A-Za-z0-9/._+@~\200-\377-')
		[ -z "$bad" ] || die "cannot build: the path of the $1 folder, \"$path\", has characters that a build does not take: \"$bad\"." \
			"$3 that has only letters, digits and . _ + @ ~ - in its whole path."
	done
}

build() {
	dir=$(absolute "${1:-build}")
	check_path source "$top" "Clone the project into one"
	check_path build "$dir" "Name one, as $0 build DIR does,"
	install_packages
	mkdir -p "$dir"
	headers=$(cuda_headers "$dir/cuda-headers")
	[ -x "$top/configure" ] || (cd "$top" && ./autogen.sh >"$dir/autogen.log" 2>&1) ||
		die "autogen.sh failed: see $dir/autogen.log"
	cd "$dir"
	[ -f config.status ] || "$top/configure" --prefix="$dir/inst" --with-cuda="$headers"
	make -j"$jobs" all
	make -j"$jobs" trainers check-programs
	make install >/dev/null
	make install-simgpu-kernels >/dev/null
	say "built in $dir and installed into $dir/inst"
}

# PyTorch for tests/torch, in a virtual environment that all builds share. TORCH_PYTHON names another one. The release is
# the one whose kernels tests/sim/device/kernels.rules has been held to; TORCH_VERSION asks for another.
torch() {
	venv=${XDG_CACHE_HOME:-$HOME/.cache}/transpckpt/torch
	if [ -n "${TORCH_PYTHON:-}" ] || "$venv/bin/python" -c 'import torch' 2>/dev/null; then
		return 0
	fi
	say "installing PyTorch into $venv"
	rm -rf "$venv"
	mkdir -p "${venv%/*}"
	if ! { python3 -m venv "$venv" && timeout "${TORCH_INSTALL_SEC:-1500}" \
		"$venv/bin/python" -m pip install -q --no-cache-dir "torch==${TORCH_VERSION:-2.15.*}"; } >"$venv.log" 2>&1; then
		say "PyTorch cannot be installed: $(tail -n 1 "$venv.log")"
		rm -rf "$venv"
		return 1
	fi
}

# Training loops that others wrote, for tests/torch/kill_loops.py: an environment of their own that sees PyTorch's, which
# stays as it is, without numpy. The releases of what saves are those of doc/files.md's table, here and below.
loops() {
	venv=${XDG_CACHE_HOME:-$HOME/.cache}/transpckpt/loops
	python=${TORCH_PYTHON:-${venv%/loops}/torch/bin/python}
	if "$venv/bin/python" -c 'import torch, numpy, lightning, accelerate, transformers' 2>/dev/null; then
		return 0
	fi
	say "installing Lightning, accelerate and transformers into $venv"
	rm -rf "$venv"
	if ! { "$python" -m venv "$venv" &&
		"$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null |
		tee "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth" | grep -q . &&
		timeout "${TORCH_INSTALL_SEC:-1500}" "$venv/bin/python" -m pip install -q --no-cache-dir \
			'numpy==2.4.*' 'lightning==2.6.*' 'accelerate==1.15.*' 'transformers==5.23.*' 'safetensors==0.8.*'; } >"$venv.log" 2>&1; then
		say "they cannot be installed: $(tail -n 1 "$venv.log")"
		rm -rf "$venv"
		return 1
	fi
}

# Other stacks, for tests/stacks, in an environment of their own; without one of them its case is skipped. CuPy and numba
# compile for the device by the vendor's NVRTC and NVVM.
stacks() {
	venv=${XDG_CACHE_HOME:-$HOME/.cache}/transpckpt/stacks
	if [ -n "${STACKS_PYTHON:-}" ]; then
		return 0
	fi
	mkdir -p "${venv%/*}"
	"$venv/bin/python" -m pip --version >/dev/null 2>&1 || {
		rm -rf "$venv"
		python3 -m venv "$venv" >"$venv.log" 2>&1 || return 1
	}
	lacking=
	for stack in 'jax jax==0.*' 'numba numba==0.*' 'tensorflow tensorflow-cpu==2.*' \
		'cupy cupy-cuda13x==14.* nvidia-cuda-nvrtc==13.* nvidia-cuda-runtime==13.* nvidia-cuda-cccl==13.*' \
		'numba_cuda numba-cuda==0.* nvidia-cuda-nvrtc==13.* nvidia-cuda-runtime==13.* nvidia-nvvm==13.*'; do
		name=${stack%% *}
		mark=$venv/.$name
		[ ! -e "$mark" ] || continue
		say "installing $name into $venv"
		set -f
		# shellcheck disable=SC2086 # a list of words
		if timeout "${STACKS_INSTALL_SEC:-600}" "$venv/bin/python" -m pip install -q --no-cache-dir ${stack#* } >"$venv.log" 2>&1; then
			: >"$mark"
		else
			say "$name cannot be installed: $(tail -n 1 "$venv.log")"
			lacking="$lacking $name"
		fi
		set +f
	done
	[ -z "$lacking" ]
}

# What tests/torch/kill_strangers.py runs beside PyTorch, in an environment that sees PyTorch's; without one of them its case is left out.
strangers() {
	venv=${XDG_CACHE_HOME:-$HOME/.cache}/transpckpt/strangers
	python=${TORCH_PYTHON:-${venv%/strangers}/torch/bin/python}
	if "$venv/bin/python" -c 'import torch, numpy, tensorboard, tqdm, datasets, webdataset, gymnasium, optuna, hydra, mlflow, wandb, nbconvert, ipykernel, ray, tensorboardX' 2>/dev/null; then
		trackers
		return 0
	fi
	say "installing what many training scripts use into $venv"
	rm -rf "$venv"
	if ! { "$python" -m venv "$venv" &&
		"$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null |
		tee "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth" | grep -q . &&
		timeout "${TORCH_INSTALL_SEC:-1500}" "$venv/bin/python" -m pip install -q --no-cache-dir \
			'numpy==2.4.*' 'tensorboard==2.*' 'tqdm==4.*' 'datasets==5.*' 'webdataset==1.*' 'gymnasium==1.*' 'optuna==5.*' \
			'hydra-core==1.3.*' 'mlflow-skinny==3.*' 'wandb==0.*' 'nbconvert==7.*' 'ipykernel==7.*' 'ray==2.*' 'tensorboardX==2.*'; } >"$venv.log" 2>&1; then
		say "they cannot be installed: $(tail -n 1 "$venv.log")"
		rm -rf "$venv"
		return 1
	fi
	trackers
}

# Two trackers beside them; without one of them its case is left out.
trackers() {
	"$venv/bin/python" -c 'import sys
from importlib.util import find_spec
sys.exit(not (find_spec("comet_ml") and find_spec("neptune")))' 2>/dev/null ||
		timeout "${STACKS_INSTALL_SEC:-600}" "$venv/bin/python" -m pip install -q --no-cache-dir 'comet-ml==3.*' 'neptune==1.*' >>"$venv.log" 2>&1 ||
		say "Comet and Neptune cannot be installed: $(tail -n 1 "$venv.log")"
}

# What only tests/frameworks and tests/files/databases.py run: h5py, Orbax and databases, in an environment that sees JAX of the other stacks.
frameworks() {
	venv=${XDG_CACHE_HOME:-$HOME/.cache}/transpckpt/frameworks
	python=${STACKS_PYTHON:-${venv%/frameworks}/stacks/bin/python}
	if "$venv/bin/python" -c 'import h5py, orbax.checkpoint, lmdb, plyvel, rocksdict' 2>/dev/null; then
		return 0
	fi
	say "installing h5py, Orbax and databases into $venv"
	rm -rf "$venv"
	if ! { "$python" -m venv "$venv" &&
		"$python" -c 'import os, jax; print(os.path.dirname(os.path.dirname(jax.__file__)))' 2>/dev/null |
		tee "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/stacks.pth" | grep -q . &&
		timeout "${STACKS_INSTALL_SEC:-600}" "$venv/bin/python" -m pip install -q --no-cache-dir \
			'numpy==2.*' 'h5py==3.*' 'orbax-checkpoint==0.12.*' \
			'lmdb==3.*' 'plyvel==1.*' 'rocksdict==0.3.*'; } >"$venv.log" 2>&1; then
		say "they cannot be installed: $(tail -n 1 "$venv.log")"
		rm -rf "$venv"
		return 1
	fi
}

# What the makers of PyTorch and safetensors test of files, for tests/frameworks/suites.py, and DeepSpeed and what those
# tests need, in an environment that sees PyTorch's and that of the loops. PyTorch's tests are in no wheel: they come
# with Debian's source of it, of the stable release after 12; those of safetensors with its source on PyPI.
suites() {
	venv=${XDG_CACHE_HOME:-$HOME/.cache}/transpckpt/suites
	python=${TORCH_PYTHON:-${venv%/suites}/torch/bin/python}
	status=0
	if ! "$venv/bin/python" -c 'import torch, numpy, expecttest, deepspeed' 2>/dev/null; then
		say "installing DeepSpeed into $venv"
		rm -rf "$venv"
		if ! { "$python" -m venv "$venv" &&
			{ "$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' &&
				"${venv%/suites}/loops/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; } \
				>"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/loops.pth" &&
			timeout "${TORCH_INSTALL_SEC:-1500}" "$venv/bin/python" -m pip install -q --no-cache-dir -U \
				'setuptools==84.*' 'wheel==0.*' 'expecttest==0.3.*' &&
			DS_BUILD_OPS=0 DS_ACCELERATOR=cpu timeout "${TORCH_INSTALL_SEC:-1500}" "$venv/bin/python" -m pip install -q \
				--no-cache-dir --no-build-isolation 'deepspeed==0.19.*'; } >"$venv.log" 2>&1; then
			say "it cannot be installed: $(tail -n 1 "$venv.log")"
			rm -rf "$venv"
			return 1
		fi
	fi
	for maker in torch safetensors; do
		[ ! -d "$venv/$maker" ] || continue
		rm -rf "$venv/download"
		mkdir -p "$venv/download/tests"
		say "fetching the tests of $maker"
		if "${maker}_tests" "$venv/download" >"$venv.log" 2>&1; then
			mv "$venv/download/tests" "$venv/$maker"
		else
			say "they cannot be fetched: $(tail -n 1 "$venv.log")"
			status=1
		fi
		rm -rf "$venv/download"
	done
	return $status
}

# With lists of apt's own, so that the machine's stay as they are, and root is not needed.
torch_tests() (
	cd "$1"
	# shellcheck disable=SC1091,SC2016 # the system's; apt's own variables
	archive=$(. /etc/os-release && apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
		awk -v release="$VERSION_CODENAME" '$1 == release && $2 == "main" { print $3; exit }')
	mkdir -p sources.d lists/partial archives/partial
	printf '%s\n' 'Types: deb-src' "URIs: $archive" 'Suites: trixie' 'Components: main' \
		'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >sources.d/trixie.sources
	printf '%s\n' 'Dir::Etc::sourcelist "/dev/null";' "Dir::Etc::sourceparts \"$1/sources.d\";" "Dir::State::lists \"$1/lists\";" \
		"Dir::Cache \"$1\";" 'APT::Sandbox::User "";' >apt.conf
	export APT_CONFIG="$1/apt.conf"
	timeout 300 apt-get update -qq && timeout 300 apt-get source -qq --download-only pytorch &&
		echo '099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff  pytorch_2.6.0+dfsg.orig.tar.xz' | sha256sum -c &&
		tar -xJf pytorch_2.6.0+dfsg.orig.tar.xz -C tests --strip-components=2 --wildcards '*/test/test_serialization.py' \
			'*/test/test_package.py' '*/test/package/*' '*/test/jit/*.py' '*/test/distributed/checkpoint/*.py'
)

# pip asks a package's build system for its name before it hands out its source; that one's is a compiler of Rust's.
safetensors_tests() (
	cd "$1"
	mkdir maturin
	cat >maturin/maturin.py <<-'END'
		import os
		def get_requires_for_build_wheel(settings=None):
		    return []
		def prepare_metadata_for_build_wheel(folder, settings=None):
		    name = "safetensors-0.8.0.dist-info"
		    os.mkdir(os.path.join(folder, name))
		    with open(os.path.join(folder, name, "METADATA"), "w") as f:
		        f.write("Metadata-Version: 2.1\nName: safetensors\nVersion: 0.8.0\n")
		    return name
	END
	echo 'safetensors==0.8.0 --hash=sha256:fabaf3e0f18a6618d9b36560682562157f77c2b71fcffc7b432be2baed9d753d' >requirements.txt
	PYTHONPATH=$1/maturin timeout 300 "$1/../bin/python" -m pip download -q --no-deps --no-binary :all: --no-build-isolation \
		--require-hashes -r requirements.txt &&
		tar -xzf safetensors-0.8.0.tar.gz -C tests --strip-components=3 safetensors-0.8.0/bindings/python/tests
)

case ${1:-} in
torch)
	install_packages
	status=0
	{ torch && loops && strangers; } || status=1
	stacks || status=1
	frameworks || status=1
	suites || status=1
	exit $status
	;;
build)
	build "${2:-}"
	;;
demo)
	build "${2:-}"
	exec "$top/tests/e2e/demo.sh" "$dir"
	;;
demo-twin)
	build "${2:-}"
	builddir=$dir python3 -B "$top/tests/e2e/demo_twin.py" || exit
	srcdir=$top builddir=$dir python3 -B "$top/tests/torch/demo_twin.py"
	status=$?
	[ "$status" -eq 77 ] || exit "$status"
	;;
demo-cluster)
	build "${2:-}"
	builddir=$dir exec python3 -B "$top/tests/cluster/demo.py"
	;;
demo-torch)
	build "${2:-}"
	torch || exit 1
	srcdir=$top builddir=$dir exec python3 -B "$top/tests/torch/demo.py"
	;;
check)
	more_packages=$check_packages
	build "${2:-}"
	exec make -k -j"$jobs" check-without-frameworks
	;;
fuzz)
	more_packages=$fuzz_packages
	build "${2:-}"
	exec make fuzz
	;;
check-frameworks | check-long)
	[ "$1" = check-frameworks ] || more_packages=$fuzz_packages
	build "${2:-}"
	if torch; then
		loops || say "tests/torch/kill_loops.py is skipped"
		strangers || say "tests/torch/kill_strangers.py runs what needs PyTorch only"
		suites || say "suites of tests/frameworks are skipped"
	else
		say "the suite of tests/torch is skipped"
	fi
	stacks || say "cases of tests/stacks are skipped"
	frameworks || say "cases of tests/frameworks are skipped"
	exec make -k -j"$jobs" "$1"
	;;
*)
	sed -n '3,17s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
