    .section .rodata
    .global bunshin_parasite_start, bunshin_parasite_end, bunshin_restorer_start, bunshin_restorer_end
    .balign 16
bunshin_parasite_start:
    .incbin "parasite.bin"
bunshin_parasite_end:
    .balign 16
bunshin_restorer_start:
    .incbin "restorer.bin"
bunshin_restorer_end:
    .section .note.GNU-stack, "", @progbits
