// Generated from vta/isa/isa.def by vta_isa_test. Do not edit.
// To write it: TILEWRIGHT_UPDATE_GOLDEN=1 build/release/bin/vta_isa_test
//
// What the RTL knows of the instruction set. VTA_CONFIG_<name> takes a configuration.
// verilator lint_off UNUSEDPARAM
`ifdef VTA_CONFIG_block8
package vta_isa;
  // block=8,uop=4096,wgt=512,inp=1024,acc=1024,sram_bits=16,dram_bits=32,size_bits=16,pad_bits=4,iter_bits=14,imm_bits=16
  localparam int unsigned BLOCK = 8;
  localparam int unsigned SRAM_BITS = 16;
  localparam int unsigned DRAM_BITS = 32;
  localparam int unsigned SIZE_BITS = 16;
  localparam int unsigned PAD_BITS = 4;
  localparam int unsigned ITER_BITS = 14;
  localparam int unsigned IMM_BITS = 16;
  localparam int unsigned IDENTITY = 1613562405;
  localparam int unsigned UOP_BYTES = 4;
  localparam int unsigned UOP_ELEMENTS = 4096;
  localparam int unsigned UOP_INDEX_BITS = 12;
  localparam int unsigned WGT_BYTES = 64;
  localparam int unsigned WGT_ELEMENTS = 512;
  localparam int unsigned WGT_INDEX_BITS = 9;
  localparam int unsigned INP_BYTES = 8;
  localparam int unsigned INP_ELEMENTS = 1024;
  localparam int unsigned INP_INDEX_BITS = 10;
  localparam int unsigned ACC_BYTES = 32;
  localparam int unsigned ACC_ELEMENTS = 1024;
  localparam int unsigned ACC_INDEX_BITS = 10;
  localparam int unsigned OUT_BYTES = 8;
  localparam int unsigned OUT_ELEMENTS = 1024;
  localparam int unsigned OUT_INDEX_BITS = 10;
  localparam int unsigned SRC_INDEX_BITS = 10;
  typedef enum logic [2:0] {
    MEMORY_UOP = 3'd0,
    MEMORY_WGT = 3'd1,
    MEMORY_INP = 3'd2,
    MEMORY_ACC = 3'd3,
    MEMORY_OUT = 3'd4
  } memory_t;
  typedef enum logic [2:0] {
    OPCODE_LOAD = 3'd0,
    OPCODE_STORE = 3'd1,
    OPCODE_GEMM = 3'd2,
    OPCODE_FINISH = 3'd3,
    OPCODE_ALU = 3'd4
  } opcode_t;
  typedef enum logic [2:0] {
    OPERATION_MIN = 3'd0,
    OPERATION_MAX = 3'd1,
    OPERATION_ADD = 3'd2,
    OPERATION_SHR = 3'd3,
    OPERATION_MUL = 3'd4,
    OPERATION_REQUANTISE = 3'd5
  } operation_t;
  localparam int unsigned REGISTER_CONTROL = 0;
  localparam int unsigned REGISTER_STATUS = 4;
  localparam int unsigned REGISTER_STREAM_LOW = 8;
  localparam int unsigned REGISTER_STREAM_HIGH = 12;
  localparam int unsigned REGISTER_STREAM_LENGTH = 16;
  localparam int unsigned REGISTER_CYCLES_LOW = 20;
  localparam int unsigned REGISTER_CYCLES_HIGH = 24;
  localparam int unsigned REGISTER_READ_BEATS = 28;
  localparam int unsigned REGISTER_WRITE_BEATS = 32;
  localparam int unsigned REGISTER_LOAD_BUSY = 36;
  localparam int unsigned REGISTER_COMPUTE_BUSY = 40;
  localparam int unsigned REGISTER_STORE_BUSY = 44;
  localparam int unsigned REGISTER_IDENTITY = 48;
  localparam int unsigned REGISTER_CLOCK_KHZ = 52;
  localparam int unsigned STATUS_BUSY = 0;
  localparam int unsigned STATUS_DONE = 1;
  localparam int unsigned STATUS_ILLEGAL = 2;
  localparam int unsigned STATUS_UNFINISHED = 3;
  localparam int unsigned CONTROL_START = 1;
  localparam int unsigned CONTROL_STOP = 2;
  typedef struct packed {
    logic [3:0] x_pad_1;
    logic [3:0] x_pad_0;
    logic [3:0] y_pad_1;
    logic [3:0] y_pad_0;
    logic [15:0] x_stride;
    logic [15:0] x_size;
    logic [15:0] y_size;
    logic [5:0] unused_58;
    logic [31:0] dram_base;
    logic [15:0] sram_base;
    logic [2:0] memory;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } transfer_t;
  typedef struct packed {
    logic [5:0] unused_122;
    logic [8:0] wgt_factor_in;
    logic [8:0] wgt_factor_out;
    logic [9:0] src_factor_in;
    logic [9:0] src_factor_out;
    logic [9:0] dst_factor_in;
    logic [9:0] dst_factor_out;
    logic [1:0] unused_62;
    logic [0:0] overwrite;
    logic [13:0] iter_in;
    logic [13:0] iter_out;
    logic [12:0] uop_end;
    logic [11:0] uop_begin;
    logic [0:0] reset;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } gemm_t;
  typedef struct packed {
    logic [3:0] unused_124;
    logic signed [15:0] imm;
    logic [0:0] use_imm;
    logic [2:0] operation;
    logic [9:0] src_factor_in;
    logic [9:0] src_factor_out;
    logic [9:0] dst_factor_in;
    logic [9:0] dst_factor_out;
    logic [1:0] unused_62;
    logic [0:0] overwrite;
    logic [13:0] iter_in;
    logic [13:0] iter_out;
    logic [12:0] uop_end;
    logic [11:0] uop_begin;
    logic [0:0] reset;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } alu_t;
  typedef struct packed {
    logic [2:0] unused_29;
    logic [8:0] wgt;
    logic [9:0] src;
    logic [9:0] dst;
  } uop_t;
endpackage
`elsif VTA_CONFIG_block32
package vta_isa;
  // block=32,uop=2048,wgt=256,inp=512,acc=4096,sram_bits=14,dram_bits=32,size_bits=12,pad_bits=4,iter_bits=12,imm_bits=12
  localparam int unsigned BLOCK = 32;
  localparam int unsigned SRAM_BITS = 14;
  localparam int unsigned DRAM_BITS = 32;
  localparam int unsigned SIZE_BITS = 12;
  localparam int unsigned PAD_BITS = 4;
  localparam int unsigned ITER_BITS = 12;
  localparam int unsigned IMM_BITS = 12;
  localparam int unsigned IDENTITY = 1343423289;
  localparam int unsigned UOP_BYTES = 4;
  localparam int unsigned UOP_ELEMENTS = 2048;
  localparam int unsigned UOP_INDEX_BITS = 11;
  localparam int unsigned WGT_BYTES = 1024;
  localparam int unsigned WGT_ELEMENTS = 256;
  localparam int unsigned WGT_INDEX_BITS = 8;
  localparam int unsigned INP_BYTES = 32;
  localparam int unsigned INP_ELEMENTS = 512;
  localparam int unsigned INP_INDEX_BITS = 9;
  localparam int unsigned ACC_BYTES = 128;
  localparam int unsigned ACC_ELEMENTS = 4096;
  localparam int unsigned ACC_INDEX_BITS = 12;
  localparam int unsigned OUT_BYTES = 32;
  localparam int unsigned OUT_ELEMENTS = 4096;
  localparam int unsigned OUT_INDEX_BITS = 12;
  localparam int unsigned SRC_INDEX_BITS = 12;
  typedef enum logic [2:0] {
    MEMORY_UOP = 3'd0,
    MEMORY_WGT = 3'd1,
    MEMORY_INP = 3'd2,
    MEMORY_ACC = 3'd3,
    MEMORY_OUT = 3'd4
  } memory_t;
  typedef enum logic [2:0] {
    OPCODE_LOAD = 3'd0,
    OPCODE_STORE = 3'd1,
    OPCODE_GEMM = 3'd2,
    OPCODE_FINISH = 3'd3,
    OPCODE_ALU = 3'd4
  } opcode_t;
  typedef enum logic [2:0] {
    OPERATION_MIN = 3'd0,
    OPERATION_MAX = 3'd1,
    OPERATION_ADD = 3'd2,
    OPERATION_SHR = 3'd3,
    OPERATION_MUL = 3'd4,
    OPERATION_REQUANTISE = 3'd5
  } operation_t;
  localparam int unsigned REGISTER_CONTROL = 0;
  localparam int unsigned REGISTER_STATUS = 4;
  localparam int unsigned REGISTER_STREAM_LOW = 8;
  localparam int unsigned REGISTER_STREAM_HIGH = 12;
  localparam int unsigned REGISTER_STREAM_LENGTH = 16;
  localparam int unsigned REGISTER_CYCLES_LOW = 20;
  localparam int unsigned REGISTER_CYCLES_HIGH = 24;
  localparam int unsigned REGISTER_READ_BEATS = 28;
  localparam int unsigned REGISTER_WRITE_BEATS = 32;
  localparam int unsigned REGISTER_LOAD_BUSY = 36;
  localparam int unsigned REGISTER_COMPUTE_BUSY = 40;
  localparam int unsigned REGISTER_STORE_BUSY = 44;
  localparam int unsigned REGISTER_IDENTITY = 48;
  localparam int unsigned REGISTER_CLOCK_KHZ = 52;
  localparam int unsigned STATUS_BUSY = 0;
  localparam int unsigned STATUS_DONE = 1;
  localparam int unsigned STATUS_ILLEGAL = 2;
  localparam int unsigned STATUS_UNFINISHED = 3;
  localparam int unsigned CONTROL_START = 1;
  localparam int unsigned CONTROL_STOP = 2;
  typedef struct packed {
    logic [11:0] unused_116;
    logic [3:0] x_pad_1;
    logic [3:0] x_pad_0;
    logic [3:0] y_pad_1;
    logic [3:0] y_pad_0;
    logic [11:0] x_stride;
    logic [11:0] x_size;
    logic [11:0] y_size;
    logic [7:0] unused_56;
    logic [31:0] dram_base;
    logic [13:0] sram_base;
    logic [2:0] memory;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } transfer_t;
  typedef struct packed {
    logic [7:0] wgt_factor_in;
    logic [7:0] wgt_factor_out;
    logic [11:0] src_factor_in;
    logic [11:0] src_factor_out;
    logic [11:0] dst_factor_in;
    logic [11:0] dst_factor_out;
    logic [7:0] unused_56;
    logic [0:0] overwrite;
    logic [11:0] iter_in;
    logic [11:0] iter_out;
    logic [11:0] uop_end;
    logic [10:0] uop_begin;
    logic [0:0] reset;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } gemm_t;
  typedef struct packed {
    logic signed [11:0] imm;
    logic [0:0] use_imm;
    logic [2:0] operation;
    logic [11:0] src_factor_in;
    logic [11:0] src_factor_out;
    logic [11:0] dst_factor_in;
    logic [11:0] dst_factor_out;
    logic [7:0] unused_56;
    logic [0:0] overwrite;
    logic [11:0] iter_in;
    logic [11:0] iter_out;
    logic [11:0] uop_end;
    logic [10:0] uop_begin;
    logic [0:0] reset;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } alu_t;
  typedef struct packed {
    logic [7:0] wgt;
    logic [11:0] src;
    logic [11:0] dst;
  } uop_t;
endpackage
`else
package vta_isa;
  // block=16,uop=8192,wgt=1024,inp=2048,acc=2048,sram_bits=16,dram_bits=32,size_bits=16,pad_bits=4,iter_bits=14,imm_bits=16
  localparam int unsigned BLOCK = 16;
  localparam int unsigned SRAM_BITS = 16;
  localparam int unsigned DRAM_BITS = 32;
  localparam int unsigned SIZE_BITS = 16;
  localparam int unsigned PAD_BITS = 4;
  localparam int unsigned ITER_BITS = 14;
  localparam int unsigned IMM_BITS = 16;
  localparam int unsigned IDENTITY = 417641505;
  localparam int unsigned UOP_BYTES = 4;
  localparam int unsigned UOP_ELEMENTS = 8192;
  localparam int unsigned UOP_INDEX_BITS = 13;
  localparam int unsigned WGT_BYTES = 256;
  localparam int unsigned WGT_ELEMENTS = 1024;
  localparam int unsigned WGT_INDEX_BITS = 10;
  localparam int unsigned INP_BYTES = 16;
  localparam int unsigned INP_ELEMENTS = 2048;
  localparam int unsigned INP_INDEX_BITS = 11;
  localparam int unsigned ACC_BYTES = 64;
  localparam int unsigned ACC_ELEMENTS = 2048;
  localparam int unsigned ACC_INDEX_BITS = 11;
  localparam int unsigned OUT_BYTES = 16;
  localparam int unsigned OUT_ELEMENTS = 2048;
  localparam int unsigned OUT_INDEX_BITS = 11;
  localparam int unsigned SRC_INDEX_BITS = 11;
  typedef enum logic [2:0] {
    MEMORY_UOP = 3'd0,
    MEMORY_WGT = 3'd1,
    MEMORY_INP = 3'd2,
    MEMORY_ACC = 3'd3,
    MEMORY_OUT = 3'd4
  } memory_t;
  typedef enum logic [2:0] {
    OPCODE_LOAD = 3'd0,
    OPCODE_STORE = 3'd1,
    OPCODE_GEMM = 3'd2,
    OPCODE_FINISH = 3'd3,
    OPCODE_ALU = 3'd4
  } opcode_t;
  typedef enum logic [2:0] {
    OPERATION_MIN = 3'd0,
    OPERATION_MAX = 3'd1,
    OPERATION_ADD = 3'd2,
    OPERATION_SHR = 3'd3,
    OPERATION_MUL = 3'd4,
    OPERATION_REQUANTISE = 3'd5
  } operation_t;
  localparam int unsigned REGISTER_CONTROL = 0;
  localparam int unsigned REGISTER_STATUS = 4;
  localparam int unsigned REGISTER_STREAM_LOW = 8;
  localparam int unsigned REGISTER_STREAM_HIGH = 12;
  localparam int unsigned REGISTER_STREAM_LENGTH = 16;
  localparam int unsigned REGISTER_CYCLES_LOW = 20;
  localparam int unsigned REGISTER_CYCLES_HIGH = 24;
  localparam int unsigned REGISTER_READ_BEATS = 28;
  localparam int unsigned REGISTER_WRITE_BEATS = 32;
  localparam int unsigned REGISTER_LOAD_BUSY = 36;
  localparam int unsigned REGISTER_COMPUTE_BUSY = 40;
  localparam int unsigned REGISTER_STORE_BUSY = 44;
  localparam int unsigned REGISTER_IDENTITY = 48;
  localparam int unsigned REGISTER_CLOCK_KHZ = 52;
  localparam int unsigned STATUS_BUSY = 0;
  localparam int unsigned STATUS_DONE = 1;
  localparam int unsigned STATUS_ILLEGAL = 2;
  localparam int unsigned STATUS_UNFINISHED = 3;
  localparam int unsigned CONTROL_START = 1;
  localparam int unsigned CONTROL_STOP = 2;
  typedef struct packed {
    logic [3:0] x_pad_1;
    logic [3:0] x_pad_0;
    logic [3:0] y_pad_1;
    logic [3:0] y_pad_0;
    logic [15:0] x_stride;
    logic [15:0] x_size;
    logic [15:0] y_size;
    logic [5:0] unused_58;
    logic [31:0] dram_base;
    logic [15:0] sram_base;
    logic [2:0] memory;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } transfer_t;
  typedef struct packed {
    logic [9:0] wgt_factor_in;
    logic [9:0] wgt_factor_out;
    logic [10:0] src_factor_in;
    logic [10:0] src_factor_out;
    logic [10:0] dst_factor_in;
    logic [10:0] dst_factor_out;
    logic [0:0] overwrite;
    logic [13:0] iter_in;
    logic [13:0] iter_out;
    logic [13:0] uop_end;
    logic [12:0] uop_begin;
    logic [0:0] reset;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } gemm_t;
  typedef struct packed {
    logic signed [15:0] imm;
    logic [0:0] use_imm;
    logic [2:0] operation;
    logic [10:0] src_factor_in;
    logic [10:0] src_factor_out;
    logic [10:0] dst_factor_in;
    logic [10:0] dst_factor_out;
    logic [0:0] overwrite;
    logic [13:0] iter_in;
    logic [13:0] iter_out;
    logic [13:0] uop_end;
    logic [12:0] uop_begin;
    logic [0:0] reset;
    logic [0:0] push_next;
    logic [0:0] push_prev;
    logic [0:0] pop_next;
    logic [0:0] pop_prev;
    logic [2:0] opcode;
  } alu_t;
  typedef struct packed {
    logic [9:0] wgt;
    logic [10:0] src;
    logic [10:0] dst;
  } uop_t;
endpackage
`endif
// verilator lint_on UNUSEDPARAM
