# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What tests of `transpckpt infer` share: a folder of their own, and a sequence whose iterations are known.
infer() { "${builddir:-.}/transpckpt" infer "$@"; }

work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
count=0 failed=0

ok() { # STATUS WHAT
    count=$((count + 1))
    if test "$1" -eq 0; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        failed=1
    fi
}

same() { # WANTED FOUND WHAT
    if cmp -s "$1" "$2"; then
        ok 0 "$3"
    else
        ok 1 "$3"
        diff "$1" "$2" | sed 's/^/#   /'
    fi
}

done_testing() {
    echo "1..$count"
    exit $failed
}

# Ten iterations of eight operations, the last two an optimizer's.
: >"$work/known.tsv"
: >"$work/wanted"
for i in 0 1 2 3 4 5 6 7 8 9; do
    {
        printf 'memcpy\tcopy\t-\t-\t-\t7\t1\t4096\tHtoD\t%s\tcudaMemcpyAsync\t0\n' "$i"
        for name in k_forward_a k_forward_b k_loss k_backward_b k_backward_a; do
            printf 'kernel\t%s\t%s,1,1\t128,1,1\t0\t7\t1\t0\t-\t%s\tcudaLaunchKernel\t0\n' "$name" "${#name}" "$i"
        done
        printf 'kernel\tfused_adamw_kernel(float*)\t4,1,1\t128,1,1\t0\t7\t1\t0\t-\t%s\tcudaLaunchKernel\t0\n' "$i"
        printf 'kernel\tfused_adamw_kernel(float*)\t9,1,1\t128,1,1\t0\t7\t1\t0\t-\t%s\tcudaLaunchKernel\t0\n' "$i"
    } >>"$work/known.tsv"
    test "$i" -ge 1 && echo $((i * 8 + 7)) >>"$work/wanted"
done
