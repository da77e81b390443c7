"""Commands that look at nothing but their arguments, their input, and files: all of which is in the state."""

from __future__ import annotations

__all__ = ["PLAIN"]

_NAMES = """
    7z : [[ alias arch as b2sum base32 base64 basename bc break bunzip2 bzip2 c++ cat cc cd chgrp chmod chown cksum
    clang clear cmp column comm continue cpp csplit cut dc dd declare diff3 dirname dirs dos2unix dpkg dpkg-query
    echo ed envsubst ex exit expand export expr factor false file fmt fold g++ gcc getconf getent getfacl getfattr
    getopts groups gunzip head help hexdump hostname iconv id info javac join jq killall ld ldconfig ldd less
    let ln local locale man mapfile md5sum mkdir more nano nl nm nproc numfmt objdump od paste patch pkill popd pr
    printenv printf pushd pwd read readelf readlink readonly realpath reset return rev rm rmdir rustc sdiff sed seq
    set setfacl setfattr sha1sum sha224sum sha256sum sha384sum sha512sum shift shopt size sleep split strings strip
    stty sum sync tac tail tee test tidy touch tr trap true truncate tsort tty typeset ulimit umask unalias uname
    unexpand uniq unix2dos unlink unrar unset unxz unzip update-alternatives vi vim visudo wait wc whereis which
    whoami xmllint xxd xz yes yq zcat zstd
"""
PLAIN = frozenset(_NAMES.split())
