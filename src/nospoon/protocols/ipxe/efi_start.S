# What UEFI starts from the boot image: an EFI application (UEFI 2.10 §4.1) that connects all drivers
# and runs the iPXE that is appended to it, with a keyboard on which our command is typed.
# Assembled: `as -o a.o efi_start.S && objcopy -O binary a.o a.bin`; starters.py has the result.
#
# Two things are missing there. Firmware connects drivers only to what is in its boot order
# (UEFI 2.10 §3.1.1), so that disks behind our CD cannot be read. And Debian's iPXE for UEFI takes a
# script from DHCP or a keyboard only: its autoexec.ipxe came in 2020. Calls: rcx, rdx, r8, r9, stack
# from rsp+20h (§2.3.4.2); numbers are offsets in the tables of §4.3, §4.4 and §9.1.
        .intel_syntax noprefix
        .set    BootServices, 96
        .set    ConsoleInHandle, 40
        .set    ConIn, 48
        .set    CreateEvent, 80
        .set    SignalEvent, 104
        .set    CloseEvent, 112
        .set    HandleProtocol, 152
        .set    LoadImage, 200
        .set    StartImage, 208
        .set    ConnectController, 264
        .set    LocateHandleBuffer, 312
        .set    DeviceHandle, 24        # of EFI_LOADED_IMAGE_PROTOCOL
        # locals on the stack
        .set    keyboard, 0x30          # EFI_SIMPLE_TEXT_INPUT_PROTOCOL: Reset, ReadKeyStroke,
        .set    WaitForKey, 0x10        # WaitForKey; and of our own:
        .set    next, 0x18              # the next character
        .set    systab, 0x20
        .set    con_in, 0x28            # what was there before
        .set    con_in_handle, 0x30
        .set    count, 0x68
        .set    handles, 0x70
        .set    image, 0x78
        .set    loaded, 0x80
        .set    frame, 0x88

start:  push    rbx
        push    rsi
        push    rdi
        push    rbp
        sub     rsp, frame
        mov     rsi, rcx                # our own image's handle
        mov     rdi, rdx                # the system table
        mov     rbx, [rdx + BootServices]

        # LocateHandleBuffer(AllHandles, NULL, NULL, &count, &handles)
        xor     ecx, ecx
        xor     edx, edx
        xor     r8d, r8d
        lea     r9, [rsp + count]
        lea     rax, [rsp + handles]
        mov     [rsp + 0x20], rax
        call    [rbx + LocateHandleBuffer]
        test    rax, rax
        jnz     load
connect:
        mov     rax, [rsp + count]
        test    rax, rax
        jz      load
        dec     rax
        mov     [rsp + count], rax
        # ConnectController(handles[count], NULL, NULL, Recursive), whatever comes of it
        mov     rcx, [rsp + handles]
        mov     rcx, [rcx + rax * 8]
        xor     edx, edx
        xor     r8d, r8d
        mov     r9d, 1
        call    [rbx + ConnectController]
        jmp     connect

load:   # LoadImage(BootPolicy FALSE, us, NULL, ipxe, size, &image)
        xor     ecx, ecx
        mov     rdx, rsi
        xor     r8d, r8d
        lea     r9, [rip + ipxe]
        mov     rax, [rip + size]
        mov     [rsp + 0x20], rax
        lea     rax, [rsp + image]
        mov     [rsp + 0x28], rax
        call    [rbx + LoadImage]
        test    rax, rax
        jnz     out
        # it is from the device that we are from: there iPXE looks for file:/...
        mov     rcx, rsi
        lea     rdx, [rip + loaded_image]
        lea     r8, [rsp + loaded]
        call    [rbx + HandleProtocol]
        mov     rax, [rsp + loaded]
        mov     rbp, [rax + DeviceHandle]
        mov     rcx, [rsp + image]
        lea     rdx, [rip + loaded_image]
        lea     r8, [rsp + loaded]
        call    [rbx + HandleProtocol]
        mov     rax, [rsp + loaded]
        mov     [rax + DeviceHandle], rbp

        # the keyboard; without ConsoleInHandle no one looks for a better one
        lea     rax, [rip + reset]
        mov     [rsp + keyboard], rax
        lea     rax, [rip + read]
        mov     [rsp + keyboard + 8], rax
        lea     rax, [rip + typed]
        mov     [rsp + keyboard + next], rax
        mov     [rsp + keyboard + systab], rdi
        mov     rax, [rdi + ConIn]
        mov     [rsp + keyboard + con_in], rax
        mov     rax, [rdi + ConsoleInHandle]
        mov     [rsp + keyboard + con_in_handle], rax
        # CreateEvent(EVT_NOTIFY_WAIT, TPL_CALLBACK, ready, BootServices, &WaitForKey)
        mov     ecx, 0x100
        mov     edx, 8
        lea     r8, [rip + ready]
        mov     r9, rbx
        lea     rax, [rsp + keyboard + WaitForKey]
        mov     [rsp + 0x20], rax
        call    [rbx + CreateEvent]
        test    rax, rax
        jnz     out
        lea     rax, [rsp + keyboard]
        mov     [rdi + ConIn], rax
        and     qword ptr [rdi + ConsoleInHandle], 0

        # StartImage(image, NULL, NULL)
        mov     rcx, [rsp + image]
        xor     edx, edx
        xor     r8d, r8d
        call    [rbx + StartImage]
        mov     rbp, rax
        lea     rcx, [rsp + keyboard]
        call    give_back
        mov     rcx, [rsp + keyboard + WaitForKey]
        call    [rbx + CloseEvent]
        mov     rax, rbp
out:    add     rsp, frame
        pop     rbp
        pop     rdi
        pop     rsi
        pop     rbx
        ret

read:   # ReadKeyStroke(This, Key): ScanCode 0, UnicodeChar the next one
        mov     r8, [rcx + next]
        movzx   eax, byte ptr [r8]
        shl     eax, 16
        mov     [rdx], eax
        inc     r8
        mov     [rcx + next], r8
        cmp     byte ptr [r8], 0
        jne     reset
give_back:                              # the real keyboard, after the last character
        mov     rdx, [rcx + systab]
        mov     rax, [rcx + con_in]
        mov     [rdx + ConIn], rax
        mov     rax, [rcx + con_in_handle]
        mov     [rdx + ConsoleInHandle], rax
reset:  xor     eax, eax
        ret

ready:  # notification that someone waits for a key: SignalEvent(Event)
        sub     rsp, 40
        call    [rdx + SignalEvent]
        add     rsp, 40
        ret

loaded_image:                           # EFI_LOADED_IMAGE_PROTOCOL_GUID
        .long   0x5b1b31a1
        .short  0x9562, 0x11d2
        .byte   0x8e, 0x3f, 0x00, 0xa0, 0xc9, 0x69, 0x72, 0x3b
typed:  .asciz  "\002chain file:/boot.ipx\r"  # Ctrl-B gets iPXE's command line
        .balign 8
size:   .quad   0                       # of iPXE, filled in
ipxe:
