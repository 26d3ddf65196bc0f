// When a module runs its instructions: one at a time, in order. An instruction starts when it is in
// front of the module and its tokens are there. It gives its tokens in its last cycle, or as soon
// after it as their queues have room.
module vta_sequencer (
    input logic clk,
    input logic reset,
    // The instruction in front of the module.
    input logic valid,
    input vta_rtl::flags_t flags,
    input logic only_decodes,  // it has nothing to do in addition to its tokens
    // Tokens of the module before and after.
    input logic prev_available,
    input logic next_available,
    input logic prev_room,
    input logic next_room,
    output logic take_prev,
    output logic take_next,
    output logic give_prev,
    output logic give_next,
    // The instruction that runs.
    input logic last,  // its work ends in this cycle
    output logic start,  // the cycle that decodes it
    output logic done,  // it is over at the end of this cycle
    output logic idle
);
  typedef enum logic [1:0] {
    IDLE,
    RUNNING,
    GIVING
  } state_t;
  state_t state;
  logic push_prev, push_next;  // of the instruction that runs

  assign idle = state == IDLE;
  assign start = idle && valid && (!flags.pop_prev || prev_available) &&
                 (!flags.pop_next || next_available);
  assign take_prev = start && flags.pop_prev;
  assign take_next = start && flags.pop_next;

  logic ends, gives_prev, gives_next;
  assign ends = (start && only_decodes) || (state == RUNNING && last) || state == GIVING;
  assign gives_prev = idle ? flags.push_prev : push_prev;
  assign gives_next = idle ? flags.push_next : push_next;
  assign done = ends && (!gives_prev || prev_room) && (!gives_next || next_room);
  assign give_prev = done && gives_prev;
  assign give_next = done && gives_next;

  always_ff @(posedge clk) begin
    if (reset || done) state <= IDLE;
    else if (ends) state <= GIVING;
    else if (start) state <= RUNNING;
    if (start) begin
      push_prev <= flags.push_prev;
      push_next <= flags.push_next;
    end
  end
endmodule
