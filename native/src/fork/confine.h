/*
 * The system calls that tools do not get, as a seccomp filter. One program, built once, used by start.c before exec and by
 * the restorer after a rebuild: what a fork may do is what its source might.
 */
#ifndef BUNSHIN_FORK_CONFINE_H
#define BUNSHIN_FORK_CONFINE_H

#include <linux/filter.h>
#include <stddef.h>

const struct sock_filter *confine_filter(void);
size_t confine_filter_length(void);

#endif
