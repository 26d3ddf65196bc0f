// An on-chip memory with one write port and one read port, as a block RAM has them. An element has
// banks, which are written apart. What is read comes a cycle later and stays until the next read.
// A read of an element that is written in the same cycle gives the new banks if FORWARD is set;
// else it must not happen. What is written has as many bits as the element, or as a bank: then all
// banks that are written get the same.
module vta_memory #(
    parameter int unsigned ELEMENTS = 16,
    parameter int unsigned BANKS = 1,
    parameter int unsigned BANK_BITS = 64,
    parameter bit FORWARD = 1'b0,
    parameter int unsigned WRITE_BITS = BANKS * BANK_BITS,
    parameter int unsigned INDEX_BITS = $clog2(ELEMENTS),
    parameter int unsigned BITS = BANKS * BANK_BITS
) (
    input logic clk,
    input logic [BANKS-1:0] write,
    input logic [INDEX_BITS-1:0] write_index,
    input logic [WRITE_BITS-1:0] write_data,
    input logic read,
    input logic [INDEX_BITS-1:0] read_index,
    output logic [BITS-1:0] read_data
);
  logic [BITS-1:0] stored;
`ifdef SYNTHESIS
  // A memory for each bank: Yosys makes a write port with the bits of all banks for each bank of a
  // memory, and takes an hour to find that they are one.
  for (genvar b = 0; b < BANKS; b++) begin : g_memory
    logic [BANK_BITS-1:0] elements[ELEMENTS];
    always_ff @(posedge clk) begin
      if (write[b]) elements[write_index] <= write_data[b*BANK_BITS%WRITE_BITS+:BANK_BITS];
      if (read) stored[b*BANK_BITS+:BANK_BITS] <= elements[read_index];
    end
  end
`else
  // A simulator copies a whole element faster than its banks.
  logic [BITS-1:0] elements[ELEMENTS];
  always_ff @(posedge clk) begin
    if (write != '0) begin  // spares the simulator the loop
      for (int unsigned b = 0; b < BANKS; b++) begin
        if (write[b])
          elements[write_index][b*BANK_BITS+:BANK_BITS] <=
              write_data[b*BANK_BITS%WRITE_BITS+:BANK_BITS];
      end
    end
    if (read) stored <= elements[read_index];
  end
`endif

  if (FORWARD) begin : g_forward
    logic [BANKS-1:0] forwards;
    logic [WRITE_BITS-1:0] forwarded;
    always_ff @(posedge clk) begin
      if (read) begin
        forwards  <= write & {BANKS{write_index == read_index}};
        forwarded <= write_data;
      end
    end
    for (genvar b = 0; b < BANKS; b++) begin : g_bank
      assign read_data[b*BANK_BITS+:BANK_BITS] =
          forwards[b] ? forwarded[b*BANK_BITS%WRITE_BITS+:BANK_BITS] : stored[b*BANK_BITS+:BANK_BITS];
    end
  end else begin : g_plain
    assign read_data = stored;
  end
endmodule
