/* Several descriptors with a message, several messages in a stream: each comes with the very bytes it was sent with. */
#include "letters.h"

int main(void) {
    int pair[2], pipes[6][2], fds[6];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    for (int i = 0; i < 6; i++) {
        must(pipe(pipes[i]));
        fds[i] = pipes[i][1];
    }
    must(write(pair[0], "before", 6));
    post(pair[0], "one", fds, 1);
    post(pair[0], "three", fds + 1, 3);
    must(write(pair[0], "between", 7));
    must(write(pair[0], "again", 5));
    post(pair[0], "two", fds + 4, 2);
    must(write(pair[0], "after", 5));
    for (int i = 0; i < 6; i++)
        close(fds[i]);
    ready();
    go();
    static const struct {
        size_t size;
        const char *text;
        int count;
    } letters[] = {{6, "before", 0}, {2, "on", 1},   {1, "e", 0},          {64, "three", 3},
                   {9, "betweenag", 0}, {64, "aintwo", 2}, {64, "after", 0}};
    int pipe = 0;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
        struct letter letter = fetch_with(pair[1], letters[i].size, 1024, 0);
        expect(letter.size == (ssize_t)strlen(letters[i].text) && !strcmp(letter.text, letters[i].text), "letter %zu says %s", i, letter.text);
        expect(letter.count == letters[i].count, "%s came with %d descriptors", letter.text, letter.count);
        for (int j = 0; j < letter.count; j++, pipe++) {
            char text[4] = "";
            must(write(letter.fds[j], "x", 1));
            close(letter.fds[j]);
            expect(read(pipes[pipe][0], text, 4) == 1, "pipe %d", pipe);
            expect(read(pipes[pipe][0], text, 4) == 0, "pipe %d has another writer", pipe);
        }
    }
    ok();
}
