"""The thresholds of a report, each with its reason.

"Healthy runs" are those of `benchmarks/report_limits.py`: MLPs with seven activations, LeNets, nets with batch norm,
residual blocks, dropout and augmentation, 1 to 50 epochs on digits and MNIST, ten ordinary optimizers and rates; and
nets that find small objects in images, with four losses.
"""

MIN_EXAMPLES = 32  # of fewer, a unit that is at work for every tenth example may be off by chance (0.9**32 = 3 %)

# Karpathy, CS231n, "Neural Networks Part 3": as many as 40 % of a net's units can be dead if the rate is too high. Of a
# single layer, healthy runs have up to 45 %.
DEAD_UNITS = 0.6
# Glorot, Bengio: "Understanding the difficulty of training deep feedforward neural networks" (2010) find layers that
# saturate altogether where training stalls. Healthy runs have up to 35 % of a layer's numbers there.
SATURATED = 0.8

# Karpathy, CS231n: the update of weights should be about 1e-3 of them. Healthy runs lie between 5e-5, as long as there
# is much to learn, and 0.04. Weights grow at a rate that is too high, so that the ratio does not stay above for long.
SMALL_UPDATE, LARGE_UPDATE = 1e-5, 0.1
MUCH_TO_LEARN = 0.7  # learned less than this share; after it, small gradients make small updates
# Glorot, Bengio (2010): gradients should keep their size from layer to layer. Healthy runs: 0.05 to 20 times the last.
VANISHING, EXPLODING = 1e-3, 1e3

# LeCun, Bottou, Orr, Müller: "Efficient BackProp" (1998), 4.3: inputs with a mean near 0 and a variance near 1. Pixels
# of 0..1 and numbers that were normalized are within 1; raw pixels of 0..16 have 8, of 0..255 about 80.
LARGE_INPUT = 5.0  # root mean square
SMALL_INPUT = 0.02  # the largest number: pixels of 0..255 that were divided by 255 twice are up to 0.004
OFF_CENTRE = 10.0  # means of inputs, in standard deviations; photographs in 0..1 have about 2, white paper 5

LARGE_TARGETS = 10.0  # root mean square, where nothing is learned: a new model's outputs are about 1, steps about lr

MIXED = 0.25  # share of the other classes in a batch that shuffling would bring; sorted labels leave below 0.2
MIN_MIXED = 15.0  # at least this many are expected: the probability of a quarter of that is 2e-4 (Poisson)
ONE_CLASS = 0.95  # share of one class: a model that always names it is right so often

# Of pixels, one class may have nearly all, as the background of small objects: only what is not predicted is a finding.
MIN_IMAGES = 16  # of fewer, an object that is in every third image may be missing by chance ((2/3)**16 = 0.2 %)
MIN_PIXELS = 32  # of a class: fewer may be a single small object
HARDLY_PREDICTED = 0.1  # predictions of a rare class, as a share of its labels
NOT_PREDICTED = 0.01  # those of any class

MIN_STEPS = 200  # before these, nothing is said of a loss that does not fall: healthy runs begin as slowly
LEARNED = 0.03  # share of what there is to learn, from the loss of guessing to that of right answers
FALLING = 0.01  # share of it by which the loss of a slow beginner still falls in the second half of its epochs
# Shares of what there is to learn, too. Healthy runs: gaps up to 0.13, rises of the validation's loss up to 0.07.
GAP, RISE = 0.3, 0.15
ACCURACY_GAP = 0.1  # ten points of a hundred; healthy runs on digits have up to 6
LAST = 3  # epochs, in each of which a gap has to be there: batch norm's validation jumps
# The training examples, in inference, have to be better than the validation by this, too: where batch norm's running
# statistics lag, both are worse than training says. (Batch norm's paper: Ioffe, Szegedy, 2015, algorithm 2.)
INFERRED_GAP = 0.1
MIN_EPOCHS = 5  # before these, a gap may come from the model's changing within an epoch
# Training losses of healthy runs jump up by at most 0.1 of it at once, and 0.4 in ten epochs together. (SGD(0.1)
# on deep nets without a norm jumps by more now and then, and is reported.)
JUMP, JUMPS, JUMPING = 0.25, 0.5, 10
