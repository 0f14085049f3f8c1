#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.15 about=9s
# Every door by which a program comes to the driver: open it is followed, and with that door shut it is
# not, so each of these tests is known to be able to fail.
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
doors=$here/doors

build() {
    out=$1
    shift
    # shellcheck disable=SC2086 # flags are words
    ${CC:-cc} -std=gnu11 -Wall -Wextra ${CUDA_CPPFLAGS:-} -o "$out" "$@" -L"$sim/lib" || exit 99
}
build shared "$doors/runtime.c" -lcudart
build static "$doors/runtime.c" "$sim/lib/libcudart_static.a" -ldl -lpthread -lm
build linked "$doors/driver.c" -lcuda
build runpath "$doors/driver.c" -lcuda -Wl,-rpath,"$sim/lib"
build lookup "$doors/lookup.c" -ldl
build none "$doors/none.c" -ldl
build lookup_runpath "$doors/lookup.c" -ldl -Wl,-rpath,"$sim/lib"
build own "$doors/lookup.c" -DOWN_DLSYM -rdynamic -ldl
build plugin_lookup.so "$doors/lookup.c" -DPLUGIN -shared -fPIC -ldl
build plugin_shared.so "$doors/runtime.c" -DPLUGIN -shared -fPIC -lcudart
build plugin_static.so "$doors/runtime.c" -DPLUGIN -shared -fPIC -Wl,-Bsymbolic "$sim/lib/libcudart_static.a" -ldl -lpthread -lm
build plugin_linked.so "$doors/driver.c" -DPLUGIN -shared -fPIC -lcuda
build plugin_newer.so "$doors/driver.c" -DPLUGIN -DNEWER=cuSimNewerThanTheList -shared -fPIC -lcuda
build wrapped.so "$doors/wrapped.c" -shared -fPIC -ldl
build opens.so "$doors/opens.c" -shared -fPIC -ldl
mkdir found
build found/libcaller_found.so "$doors/caller.c" -DPART=3 -shared -fPIC
build libcaller2.so "$doors/caller.c" -DPART=2 -shared -fPIC
build libcaller1.so "$doors/caller.c" -DPART=1 -shared -fPIC -Wl,-rpath,"\$ORIGIN/found" -Wl,--enable-new-dtags -ldl
build caller "$doors/caller.c" -L. -Wl,--no-as-needed -lcaller1 -lcaller2 -Wl,-rpath,"\$ORIGIN"

# The library with doors shut: the forwarder away, dlsym and dlopen not ours, a driver symbol not ours.
shut() {
    folder=$D/$1
    shift
    mkdir -p "$folder"
    if [ $# -eq 0 ]; then cp "$lib" "$folder/"; else
        "${PYTHON3:-python3}" "$doors/shut.py" "$lib" "$folder/libtranspckpt.so" "$@" || exit 99
    fi
}
shut no-forwarder
shut no-dlsym dlsym
ln -s ../inst/lib/transpckpt "$D/no-dlsym/transpckpt"
shut neither dlsym
shut no-symbol cuMemAlloc_v2
shut no-lookup tpck_forward_lookup
ln -s ../inst/lib/transpckpt "$D/no-lookup/transpckpt"

# opens WHAT FOLDER WANTED COMMAND...: what the program says with the library of that folder preloaded
opens() {
    what=$1
    libraries=$D/$2/libtranspckpt.so
    wanted=$3
    shift 3
    is "$what" "$(with "$libraries" "$@" 2>&1)" "$wanted"
}
yes=followed
no="not followed"

is "plain: nothing is followed" "$(with '' ./shared 2>&1; with '' ./linked 2>&1; with '' ./lookup proc 2>&1)" "$no
$no
$no"

for program in ./shared ./static "./lookup dlsym" "./lookup proc" \
    "./lookup plugin ./plugin_lookup.so local" "./lookup plugin ./plugin_shared.so local" \
    "./lookup plugin ./plugin_static.so local"; do
    # shellcheck disable=SC2086 # a command and its arguments
    {
        opens "$program" inst/lib $yes $program
        opens "$program, by dlsym alone" no-forwarder $yes $program
        opens "$program, by the forwarder alone" no-dlsym $yes $program
        opens "$program, both shut" neither "$no" $program
    }
done

opens "linked to the driver" inst/lib $yes ./linked
opens "linked to the driver, by symbols alone" no-forwarder $yes ./linked
opens "linked to the driver, the symbol shut" no-symbol "$no" ./linked
opens "a plugin linked to the driver" inst/lib $yes ./lookup plugin ./plugin_linked.so local
opens "a plugin linked to the driver, the symbol shut" no-symbol "$no" ./lookup plugin ./plugin_linked.so local

# Own symbols first: neither our dlsym nor our driver symbols are seen, only what lies under the driver's name.
for plugin in lookup shared static linked; do
    opens "RTLD_DEEPBIND, $plugin" inst/lib $yes ./lookup plugin ./plugin_$plugin.so deepbind
    opens "RTLD_DEEPBIND, $plugin, no forwarder" no-forwarder "$no" ./lookup plugin ./plugin_$plugin.so deepbind
done

opens "a program with a dlsym of its own" inst/lib $yes ./own dlsym
opens "a program with a dlsym of its own, no forwarder" no-forwarder "$no" ./own dlsym

# A driver with calls that the forwarder does not know.
for libraries in "" "$lib" "$forwarder:$lib"; do
    is "a newer driver's call${libraries:+ by ${libraries##*/}}" "$(with "$libraries" ./lookup newer cuSimNewerThanTheList 2>&1)" "there, no error"
    is "a call that no driver has${libraries:+ by ${libraries##*/}}" "$(with "$libraries" ./lookup newer cuSimNowhere 2>&1)" "not there, an error"
done

for how in local global lazy deepbind; do
    is "a library that is linked to such a call, opened later, plain ($how)" "$(with "" ./lookup after plugin ./plugin_newer.so $how 2>&1)" "$no"
    for libraries in "$lib" "$forwarder:$lib"; do
        is "a library that is linked to such a call, opened later by ${libraries##*/} ($how)" \
            "$(with "$libraries" ./lookup after plugin ./plugin_newer.so $how 2>&1)" $yes
    done
done

# transpckpt run names the forwarder in front of the library.
run() { "$sim/simgpu-run" "$D/inst/bin/transpckpt" run -- "$@" 2>&1; }
for program in ./shared ./static ./linked "./lookup dlsym" "./lookup proc" "./own dlsym" \
    "./lookup plugin ./plugin_linked.so deepbind"; do
    # shellcheck disable=SC2086 # a command and its arguments
    is "transpckpt run: $program" "$(run $program)" $yes
done
is "the forwarder in front, by the library's look-up" "$(with "$forwarder:$lib" ./linked 2>&1)" $yes
is "the forwarder in front, the look-up shut" \
    "$(with "$forwarder:$D/no-lookup/libtranspckpt.so" ./linked 2>&1 | sed 's/.*error.*/cut off/')" "cut off"

# Another library that hooks dlopen sees what the program opens, whichever comes first.
is "another dlopen, plain" "$(with "$PWD/opens.so" ./lookup dlsym 2>&1)" "opened, $no"
is "another dlopen behind the library's" "$(with "$lib:$PWD/opens.so" ./lookup dlsym 2>&1)" "opened, $yes"
is "another dlopen before the library's" "$(with "$PWD/opens.so:$lib" ./lookup dlsym 2>&1)" "opened, $yes"

# The driver lies where only the program's own RUNPATH leads.
for program in ./runpath "./lookup_runpath dlsym" "./lookup_runpath proc"; do
    # shellcheck disable=SC2086 # a command and its arguments
    {
        is "by RUNPATH, plain: $program" "$($program 2>&1)" "$no"
        is "by RUNPATH: $program" "$(env LD_PRELOAD="$lib" $program 2>&1)" $yes
        is "by RUNPATH, run: $program" "$("$D/inst/bin/transpckpt" run -- $program 2>&1)" $yes
    }
done

# No driver at all: the library changes nothing; the forwarder, where it is named, says so.
if env ./none 2>&1 | grep -q '^no driver, no other'; then
    is "no driver: preloaded" "$(env LD_PRELOAD="$lib" ./none 2>&1 | grep -v '^default')" "no driver, no other"
    is "no driver: run" "$("$D/inst/bin/transpckpt" run -- ./none 2>&1 | grep -v '^default')" "a driver, no other
cuInit 100
cuDeviceGetCount an error
cuGetProcAddress_v2 an error nothing"
    plain=$(./static 2>/dev/null)
    is "no driver, CUDA runtime: preloaded" "$(env LD_PRELOAD="$lib" ./static 2>/dev/null)" "$plain"
    is "no driver, CUDA runtime: run" "$("$D/inst/bin/transpckpt" run -- ./static 2>/dev/null)" "$plain"
    mkdir -p "$D/transpckpt/lib"
    cp "$sim/lib/libcuda.so.1" "$sim/lib/simgpu-device" "$D/transpckpt/lib/" || exit 99
    is "a driver below a folder called transpckpt" \
        "$(LD_LIBRARY_PATH="$D/transpckpt/lib" LD_PRELOAD="$forwarder:$lib" ./lookup dlsym 2>&1)" $yes
else
    skip "no driver" "this machine has one"
fi

# The loader's view of a caller is as without us.
plain=$(./caller 2>&1)
is "RTLD_NEXT, RUNPATH and errors: plain" "$(printf '%s\n' "$plain" | head -n 2)" "next: the second library
by RUNPATH: found"
is "RTLD_NEXT, RUNPATH and errors: preloaded" "$(env LD_PRELOAD="$lib" ./caller 2>&1)" "$plain"
is "RTLD_NEXT, RUNPATH and errors: run" "$("$D/inst/bin/transpckpt" run -- ./caller 2>&1)" "$plain"
ok "dlsym and dlopen as C functions would be noticed" \
    sh -c "LD_PRELOAD=$PWD/wrapped.so timeout 10 ./caller >wrapped.out 2>&1; ! grep -q 'next: the second library' wrapped.out && ! grep -q 'RUNPATH: found' wrapped.out"

done_testing
