#!/bin/sh
# A stand-in for NVIDIA's assembler: notes what it is asked in the file that QD_FAKE_PTXAS_LOG names, and makes "code" of
# it. QD_FAKE_PTXAS makes it another one.
if [ "$1" = --version ]; then
    case "$QD_FAKE_PTXAS" in
        newer) echo "release 14.0, V14.0.1" ;;
        older) echo "release 11.8, V11.8.89" ;;
        silent) ;;
        *) echo "release 13.0, V13.0.88" ;;
    esac
    exit 0
fi
echo "$*" | sed 's/ .dev.fd.*//' >> "$QD_FAKE_PTXAS_LOG"
options="$*"
while [ $# -gt 1 ]; do
    [ "$1" = -o ] && to=$2
    case "$1" in /dev/fd/*) from=$1 ;; esac
    shift
done
case "$QD_FAKE_PTXAS $options" in
    fails*) echo "ptxas fatal" >&2; exit 255 ;;
    empty*) exit 0 ;;
    slow*O3*) sleep 100 ;;
    plain*Ofast*) echo "ptxas fatal : Unknown option" >&2; exit 255 ;;
esac
printf '\177ELF %s\n' "$(echo "$options" | sed 's/ .dev.fd.*//')" > "$to"
grep entry "$from" >> "$to"  # which kernels it has
