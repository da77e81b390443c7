#include "fork/fork.h"
void fork_seal(struct init *init, struct wire *request) { (void)init; wire_answer(request->fd[0], bunshin_error_new(BUNSHIN_ERROR_FORK, 0, "not yet")); }
void fork_release(struct init *init) { (void)init; }
struct bunshin_error *fork_rebuild(struct init *init, int image, const int *stores, int store_count, struct buffer *r) {
    (void)init;(void)image;(void)stores;(void)store_count;(void)r; return NULL; }
