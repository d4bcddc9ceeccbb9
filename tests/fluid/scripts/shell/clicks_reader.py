# The pipe command of the dataset.
import paddle.fluid.incubate.data_generator as dg


class Clicks(dg.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            user, seen, clicked = line.strip().split("\t")
            yield [
                ("user", [int(user) + 1]),
                ("seen", [int(s) + 1 for s in seen.split(",")]),
                ("clicked", [int(clicked)]),
            ]

        return samples


Clicks().run_from_stdin()
