#include <stdio.h>
#include <string.h>

#include "count.h"
#include "version.h"

int main(int argc, char **argv)
{
    struct table table = {0};
    FILE *file;

    if (argc != 2) {
        fprintf(stderr, "usage: tally FILE | --version\n");
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tally %s\n", VERSION);
        return 0;
    }
    file = fopen(argv[1], "r");
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    count_words(file, &table);
    fclose(file);
    table_sort(&table);
    for (size_t i = 0; i < table.used && i < SHOWN; i++)
        printf("%lu %s\n", table.entries[i].count, table.entries[i].word);
    printf("entropy %.3f bits\n", entropy(&table));
    table_free(&table);
    return 0;
}
