# What BIOS starts from the boot image: copies to the serial port what iPXE prints, then goes on to
# ISOLINUX. Assembled: `as -o a.o bios_start.S && objcopy -O binary a.o a.bin`; starters.py has the result.
#
# iPXE prints by INT 10h AH=0Eh, which SeaBIOS sends to the serial port only on machines without a
# display. This takes the interrupt over, at vectors 80h to 93h, which no one uses: memory below the
# EBDA is reused by operating systems' loaders. It copies what callers in the highest 512 KiB print,
# where iPXE is; GRUB, ISOLINUX and boot sectors, which have means of their own for serial ports,
# call from lower memory.
        .intel_syntax noprefix
        .code16
        .set    load, 0x7c00            # firmware loads 4 KiB to here (El Torito):
        .set    isolinux, load + 2048   # this sector, and the first one of isolinux.bin
        .set    home, 0x200
start:  jmp     install
        .org    12                      # El Torito's boot information table, which xorriso writes
sector: .long   0                       # of this file on the disc
        .org    64
install:
        cli
        cld
        push    es
        push    di
        xor     ax, ax
        mov     ds, ax
        mov     es, ax
        mov     si, offset load + print - start
        mov     di, offset home
        mov     cx, end - print
        rep     movsb
        mov     eax, [0x10 * 4]
        mov     [home + before - print], eax
        mov     dword ptr [0x10 * 4], home
        ljmp    0, home + proceed - print

print:  cmp     ah, 0x0e
        jne     pass
        push    bp
        mov     bp, sp
        cmp     word ptr [bp + 4], 0x8000  # the caller's code segment
        pop     bp
        jb      pass
        push    ax
        push    cx
        push    dx
        mov     ah, al
        xor     cx, cx
        mov     dx, 0x3fd               # line status of the first serial port
full:   in      al, dx
        test    al, 0x20
        loopz   full                    # 65,536 times at most
        mov     al, ah
        mov     dl, 0xf8
        out     dx, al
        pop     dx
        pop     cx
        pop     ax
pass:   ljmp    cs:[home + before - print]
before: .long   0

proceed:                                # overwrites `start`
        mov     eax, [load + sector - start]
        inc     eax
        mov     [isolinux + 12], eax
        mov     si, offset isolinux
        mov     di, offset load
        mov     cx, 1024
        rep     movsw
        pop     di
        pop     es
        sti
        ljmp    0, load
end:
