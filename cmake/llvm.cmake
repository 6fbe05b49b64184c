# qd_llvm: LLVM's static archives and headers, asked from llvm-config.
#
# Its CMake package is not used: Debian's export file names archives of other packages (Polly) and
# refuses to load without them. The same names appear in llvm-config's answer and are dropped.

find_program(QD_LLVM_CONFIG
    NAMES "llvm-config-${QD_LLVM_VERSION}" llvm-config
    HINTS "/usr/lib/llvm-${QD_LLVM_VERSION}/bin" REQUIRED)

function(qd_llvm_config variable)
    execute_process(COMMAND "${QD_LLVM_CONFIG}" ${ARGN}
        OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" " " answer "${answer}")
    separate_arguments(answer)
    set(${variable} "${answer}" PARENT_SCOPE)
endfunction()

qd_llvm_config(llvm_version --version)
if(NOT llvm_version MATCHES "^${QD_LLVM_VERSION}\\.")
    message(FATAL_ERROR "${QD_LLVM_CONFIG} is version ${llvm_version}, not ${QD_LLVM_VERSION}")
endif()
set(QD_FULL_LLVM_VERSION "${llvm_version}")
qd_llvm_config(llvm_include --includedir)
qd_llvm_config(llvm_libdir --libdir)
qd_llvm_config(llvm_libs --link-static --libs x86 aarch64 nvptx passes)
list(REMOVE_ITEM llvm_libs -lPolly -lPollyISL -lLLVMExtensions)
list(TRANSFORM llvm_libs REPLACE "^-l(LLVM.*)$" "${llvm_libdir}/lib\\1.a")

add_library(qd_llvm INTERFACE)
target_include_directories(qd_llvm SYSTEM INTERFACE "${llvm_include}")
target_link_libraries(qd_llvm INTERFACE ${llvm_libs} "${QD_ZSTD}" "${QD_ZLIB}" rt m ${CMAKE_DL_LIBS})
