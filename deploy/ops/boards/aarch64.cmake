# Toolchain: boards with 64-bit Arm processors and Linux, with Debian's cross compiler
# (g++-aarch64-linux-gnu) and the libraries that deploy/ops/boards/sysroot.sh fetches.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(board aarch64-linux-gnu)
set(CMAKE_C_COMPILER ${board}-gcc)
set(CMAKE_CXX_COMPILER ${board}-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${board})

set(TILEWRIGHT_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../../../build/sysroot-arm64" CACHE PATH
  "folder of deploy/ops/boards/sysroot.sh")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TILEWRIGHT_SYSROOT)
if(NOT EXISTS ${TILEWRIGHT_SYSROOT}/.complete)
  message(FATAL_ERROR "no libraries in ${TILEWRIGHT_SYSROOT}: run deploy/ops/boards/sysroot.sh with it")
endif()
file(REAL_PATH ${TILEWRIGHT_SYSROOT} sysroot)

# Libraries from there, programs (protoc) from this machine. The compiler has the C library itself.
set(CMAKE_FIND_ROOT_PATH ${sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(what LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${what} ONLY)
endforeach()
set(ENV{PKG_CONFIG_LIBDIR} ${sysroot}/usr/lib/${board}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})

# A board needs nothing but its C library: everything else is inside.
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-static-libstdc++ -static-libgcc")
endforeach()
