// Which module an instruction belongs to, and whether it means nothing.
module vta_decode (
    input logic [127:0] instruction,
    output logic to_load,
    output logic to_compute,
    output logic to_store,
    output logic illegal
);
  // verilator lint_off UNUSEDSIGNAL
  vta_isa::transfer_t transfer;  // not all fields of it
  vta_isa::alu_t alu;
  // verilator lint_on UNUSEDSIGNAL
  assign transfer = instruction;
  assign alu = instruction;

  logic moves, padded, is_load, is_out, bad_transfer, bad_gemm, bad_alu, bad_tokens, known;
  assign moves = transfer.x_size != 0;
  assign padded = transfer.y_pad_0 != 0 || transfer.y_pad_1 != 0 || transfer.x_pad_0 != 0 ||
                  transfer.x_pad_1 != 0;
  assign is_load = transfer.opcode == vta_isa::OPCODE_LOAD;
  assign is_out = transfer.memory == vta_isa::MEMORY_OUT;

  assign to_load = is_load && (transfer.memory == vta_isa::MEMORY_INP ||
                               transfer.memory == vta_isa::MEMORY_WGT);
  assign to_store = transfer.opcode == vta_isa::OPCODE_STORE;
  assign to_compute = !to_load && !to_store;

  assign known = transfer.opcode <= vta_isa::OPCODE_ALU;
  assign bad_transfer = (is_load || to_store) &&
                        (transfer.memory > vta_isa::MEMORY_OUT ||
                         (moves && (is_out == is_load || (to_store && padded))));
  assign bad_gemm = alu.opcode == vta_isa::OPCODE_GEMM && alu.reset[0] && alu.overwrite[0];
  assign bad_alu = alu.opcode == vta_isa::OPCODE_ALU &&
                   (alu.reset[0] || alu.overwrite[0] ||
                    alu.operation > vta_isa::OPERATION_REQUANTISE ||
                    (alu.operation == vta_isa::OPERATION_REQUANTISE &&
                     (alu.use_imm[0] || alu.imm < 0 || alu.imm > 62)));
  assign bad_tokens = (to_load && (transfer.pop_prev[0] || transfer.push_prev[0])) ||
                      (to_store && (transfer.pop_next[0] || transfer.push_next[0]));
  assign illegal = !known || bad_transfer || bad_gemm || bad_alu || bad_tokens;
endmodule
